"""TLS to the database: with an authority named, nobody is spoken to who cannot be trusted."""

import datetime
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from app.cli import cli
from app.db import Database
from app.dialects import database_clock
from app.engines import make_engine
from app.errors import DatabaseUnavailable
from app.migrations import MigrationFailed, migrate
from app.ops.account import encryption, is_on_this_machine
from app.ops.checks import all_checks, cheap_checks
from app.settings import BadSettings, Settings, load_settings
from app.tls import verified_tls
from tests.callers import one_by_one, register
from tests.certificates import Authority, Issued, encrypted
from tests.databases import migrated_database
from tests.servers import Server, documented_sql, private_server
from tests.services import ROOT_KEY, running_service

pytestmark = pytest.mark.locking

NAME = "cupo_test_tls"
SHORT = datetime.timedelta(seconds=2)
OPTIONS = ("--ssl-ca=own-ca.pem", "--ssl-cert=own-cert.pem", "--ssl-key=own-key.pem")


@dataclass(frozen=True)
class Home:
    """A server with a certificate for «localhost», and the files of its callers."""

    server: Server
    url: str
    folder: Path
    authority: Authority

    def settings(self, **settings: Any) -> Settings:
        return load_settings(**{"database_url": self.url, "root_key": ROOT_KEY, **settings})

    def file(self, name: str, content: bytes) -> str:
        (self.folder / name).write_bytes(content)
        return str(self.folder / name)

    @property
    def ca(self) -> str:
        return self.file("ca.pem", self.authority.certificate)

    @contextmanager
    def showing(self, issued: Issued) -> Iterator[None]:
        """The server with another certificate meanwhile."""
        assert self.server.process
        data = self.server.process.log.parent / "data"
        usual = [(data / f"own-{part}.pem").read_bytes() for part in ("cert", "key")]
        try:
            self._show(data, issued.certificate, issued.key)
            yield
        finally:
            self._show(data, *usual)

    def _show(self, data: Path, certificate: bytes, key: bytes) -> None:
        (data / "own-cert.pem").write_bytes(certificate)
        (data / "own-key.pem").write_bytes(key)
        reload = "FLUSH SSL" if self.server.kind == "mariadb" else "ALTER INSTANCE RELOAD TLS"
        with self.server.admin_connection() as admin:
            admin.exec_driver_sql(reload)


@pytest.fixture(scope="module")
def home(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    authority = Authority("trusted")
    issued = authority.issue("localhost")
    files = {
        "own-ca.pem": authority.certificate,
        "own-cert.pem": issued.certificate,
        "own-key.pem": issued.key,
    }
    with (
        private_server(pytestconfig.getoption("--server"), *OPTIONS, files=files) as server,
        migrated_database(server, NAME) as url,
    ):
        yield Home(server, at(url, "localhost"), tmp_path_factory.mktemp("tls"), authority)


def at(url: str, host: str) -> str:
    return make_url(url).set(host=host).render_as_string(hide_password=False)


def refused(settings: Settings, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says of a call that is answered by 503, at once."""
    database = Database(settings)
    caplog.clear()
    try:
        with pytest.raises(DatabaseUnavailable):
            database.transact(database_clock)
    finally:
        database.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"], (
        "no second try, which changes nothing"
    )
    return caplog.text


def unreachable(settings: Settings) -> str:
    """What doctor finds, and /readyz tells anybody."""
    found = {}
    for checks in (all_checks, cheap_checks):
        engine = make_engine(settings, pool_size=1)
        (check,) = checks(engine, settings)
        engine.dispose()
        assert (check.name, check.status) == ("reachable", "fail")
        found[check.found] = True
    (only,) = found
    return only


def test_a_server_that_can_be_trusted_is_spoken_to_by_every_command(home: Home, folder: Path) -> None:
    owner = at(home.server.url(NAME, home.server.migration_user), "localhost")
    settings = home.settings(database_tls_ca_file=home.ca, migration_database_url=owner)
    migrate(settings)
    engine = make_engine(settings, pool_size=2)
    checks = {check.name: check for check in all_checks(engine, settings)}
    with engine.connect() as connection:
        assert str(encryption(connection)).startswith("TLSv1.")
        connection.rollback()
    engine.dispose()
    assert checks["encryption"].ok
    assert checks["encryption"].found.endswith(", verified")
    file = folder / "devices.csv"
    file.write_text("user_id,device_id\n7,a\n")
    environment = {"CUPO_DATABASE_URL": home.url, "CUPO_DATABASE_TLS_CA_FILE": home.ca}
    assert CliRunner().invoke(cli, ["import", str(file)], env=environment).exit_code == 0
    with running_service(home.url, folder, database_tls_ca_file=home.ca) as service:
        assert one_by_one(service, [register(1, "a")])[0].status_code == 201


def test_an_authority_that_does_not_vouch_for_the_server_is_not_enough(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    other = home.file("other.pem", Authority("other").certificate)
    for ca_file in (other, "system"):
        settings = home.settings(database_tls_ca_file=ca_file)
        assert "certificate verify failed" in refused(settings, caplog)
        assert unreachable(settings).startswith("error 2003, TLS: ")
        with pytest.raises(MigrationFailed, match="certificate verify failed"):
            migrate(settings)


def test_a_certificate_for_another_host_is_refused(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    settings = home.settings(database_url=at(home.url, "127.0.0.1"), database_tls_ca_file=home.ca)
    assert "IP address mismatch" in refused(settings, caplog)
    assert unreachable(settings) == "error 2003, TLS: ip address mismatch"


def test_a_certificate_that_has_expired_is_refused(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    settings = home.settings(database_tls_ca_file=home.ca)
    # Valid to begin with: MySQL takes no certificate that has expired already.
    with home.showing(home.authority.issue("localhost", valid_for=SHORT)):
        time.sleep(SHORT.total_seconds())
        assert "certificate has expired" in refused(settings, caplog)
        assert unreachable(settings) == "error 2003, TLS: certificate has expired"
    with home.showing(home.authority.issue("127.0.0.1")):
        by_address = home.settings(database_url=at(home.url, "127.0.0.1"), database_tls_ca_file=home.ca)
        database = Database(by_address)
        assert database.transact(database_clock)
        database.close()


def test_a_server_without_tls_is_refused(
    home: Home, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    if server.kind == "mysql":
        with (
            private_server("mysql", "--tls-version=") as plain,
            migrated_database(plain, NAME) as url,
        ):
            refused_without_tls(home, url, caplog)
    else:
        with migrated_database(server, NAME) as url:
            refused_without_tls(home, url, caplog)


def refused_without_tls(home: Home, url: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = home.settings(database_url=url, database_tls_ca_file=home.ca)
    assert "SSL is required but the server doesn't support it" in refused(settings, caplog)
    assert unreachable(settings) == "error 2026"


def test_a_server_that_asks_for_a_certificate_gets_it(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    issued = home.authority.issue("cupo")
    files = {
        "database_tls_certificate_file": home.file("cert.pem", issued.certificate),
        "database_tls_key_file": home.file("key.pem", issued.key),
    }
    in_one = {"database_tls_certificate_file": home.file("in-one.pem", issued.in_one)}
    account = f"'{home.server.app_user}'@'%%'"
    with home.server.admin_connection() as admin:
        admin.exec_driver_sql(f"ALTER USER {account} REQUIRE X509")
        try:
            assert "Access denied" in refused(home.settings(database_tls_ca_file=home.ca), caplog)
            for own in (files, in_one):
                database = Database(home.settings(database_tls_ca_file=home.ca, **own))
                assert database.transact(database_clock)
                database.close()
        finally:
            admin.exec_driver_sql(f"ALTER USER {account} REQUIRE NONE")


def test_the_documented_way_to_refuse_who_comes_without_tls(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    required = [statement for statement in documented_sql() if "REQUIRE SSL" in statement]
    assert len(required) == 2
    ours = {"cupo_migrate": home.server.migration_user, "cupo": home.server.app_user}
    with home.server.admin_connection() as admin:
        for statement in required:
            name = statement.split("'")[1]
            admin.exec_driver_sql(statement.replace(f"'{name}'@'%'", f"'{ours[name]}'@'%%'"))
        try:
            assert "Access denied" in refused(
                home.settings(database_url=home.url + "&ssl_disabled=1"), caplog
            )
            database = Database(home.settings(database_tls_ca_file=home.ca))
            assert database.transact(database_clock)
            database.close()
        finally:
            for user in ours.values():
                admin.exec_driver_sql(f"ALTER USER '{user}'@'%%' REQUIRE NONE")


def test_a_server_elsewhere_that_is_not_verified_is_a_warning(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ops.checks.is_on_this_machine", lambda _: False)
    settings = home.settings()
    engine = make_engine(settings, pool_size=2)
    checks = {check.name: check for check in all_checks(engine, settings)}
    engine.dispose()
    assert checks["encryption"].status == "warn"
    assert checks["encryption"].found.endswith(", not verified")


@pytest.mark.parametrize(
    ("host", "near"),
    [("localhost", True), ("127.0.0.2", True), ("[::1]", True), ("db.example", False), ("10.0.0.1", False)],
)
def test_a_loopback_address_is_on_this_machine(host: str, near: bool) -> None:
    assert is_on_this_machine(make_url(f"mysql+pymysql://u:p@{host}:3306/d")) == near
    assert is_on_this_machine(make_url("mysql+pymysql://u:p@db/d?unix_socket=/run/mysqld.sock"))


def test_nothing_older_than_tls_1_2_is_spoken(home: Home) -> None:
    assert verified_tls(home.ca, None, None).minimum_version == ssl.TLSVersion.TLSv1_2


def test_connections_of_one_engine_share_a_context(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = home.settings(database_tls_ca_file=home.ca)
    engine = make_engine(settings, pool_size=2)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("reads certificates again")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", refuse)
    monkeypatch.setattr(ssl, "create_default_context", refuse)
    with engine.connect() as one, engine.connect() as two:
        assert encryption(one)
        assert encryption(two)
        one.rollback()
        two.rollback()
    engine.dispose()


def test_files_that_cannot_be_used_stop_the_start_with_a_line_that_names_them(home: Home) -> None:
    issued, other = home.authority.issue("cupo"), home.authority.issue("cupo")
    certificate = home.file("cert.pem", issued.certificate)
    not_pem = home.file("not.pem", b"nothing of the kind")
    ca, own = "database_tls_ca_file", "database_tls_certificate_file"
    key = "database_tls_key_file"
    wrong: list[tuple[dict[str, str], str]] = [
        ({ca: str(home.folder / "nowhere.pem")}, "CUPO_DATABASE_TLS_CA_FILE: cannot be read: No such file"),
        ({ca: not_pem}, "CUPO_DATABASE_TLS_CA_FILE: cannot be used: no certificate"),
        ({ca: home.ca, own: certificate}, "CUPO_DATABASE_TLS_CERTIFICATE_FILE: cannot be used: "),
        (
            {ca: home.ca, own: certificate, key: home.file("other.key", other.key)},
            "CUPO_DATABASE_TLS_CERTIFICATE_FILE: cannot be used: key values mismatch",
        ),
        (
            {ca: home.ca, own: certificate, key: home.file("locked.key", encrypted(issued.key))},
            "CUPO_DATABASE_TLS_CERTIFICATE_FILE: cannot be used: its key is under a passphrase",
        ),
        (
            {ca: home.ca, own: certificate, key: str(home.folder / "nowhere.key")},
            "CUPO_DATABASE_TLS_CERTIFICATE_FILE: cannot be read: No such file",
        ),
        ({own: certificate}, "CUPO_DATABASE_TLS_CERTIFICATE_FILE: needs CUPO_DATABASE_TLS_CA_FILE"),
        ({ca: home.ca, key: certificate}, "CUPO_DATABASE_TLS_CERTIFICATE_FILE: must be set where"),
        ({ca: home.ca, "database_url": "sqlite:///var/cupo.db"}, "CUPO_DATABASE_TLS_CA_FILE: is of no use"),
        (
            {ca: home.ca, "database_url": home.url + "&ssl_disabled=1"},
            "CUPO_DATABASE_TLS_CA_FILE: is of no use",
        ),
        ({"database_url": home.url + "&ssl_ca=ca.pem"}, "CUPO_DATABASE_URL: says how to use TLS"),
    ]
    for settings, line in wrong:
        with pytest.raises(BadSettings) as bad:
            home.settings(**settings)
        assert str(bad.value).startswith(line), bad.value
        assert "\n" not in str(bad.value)
