"""`cupo doctor` and `/readyz` name what does not hold."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.engine import URL
from typer.testing import CliRunner

from app.cli import cli
from app.engines import make_engine
from app.main import create_app
from app.migrations import migrate
from app.ops.checks import Check, all_checks, all_hold
from app.ops.health import Probe
from app.settings import Settings, load_settings
from tests.callers import one_by_one, register
from tests.databases import migrated_database
from tests.proxy import Fate, proxied
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY, running_service

pytestmark = pytest.mark.locking


@pytest.fixture
def own(server: Server) -> Iterator[Settings]:
    """A migrated database that the test may spoil."""
    with migrated_database(server, "cupo_test_doctor") as url:
        owner = server.url("cupo_test_doctor", server.migration_user)
        yield load_settings(database_url=url, migration_database_url=owner, root_key=ROOT_KEY)


def doctor(database_url: str, **settings: str) -> tuple[int, dict[str, str]]:
    """The exit status, and the checks that failed with what was found."""
    environment = os.environ | {"CUPO_DATABASE_URL": database_url, "CUPO_ROOT_KEY": ROOT_KEY} | settings
    command = [sys.executable, "-m", "app", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - our own command
    report = json.loads(done.stdout)
    failed = {check["name"]: check["found"] for check in report["checks"] if check["status"] == "fail"}
    assert report["ok"] == (not failed) == (done.returncode == 0), done.stderr
    return done.returncode, failed


def not_ready(database_url: str) -> dict[str, str]:
    """What /readyz names, asked without a process of its own."""
    probe = Probe(load_settings(database_url=database_url, root_key=ROOT_KEY))
    try:
        return {check.name: check.found for check in asyncio.run(probe.look()) if check.status == "fail"}
    finally:
        probe.close()


async def looks_around(probe: Probe, between: Callable[[], None]) -> list[Check]:
    """What a second look finds of what `between` did after the first."""
    assert all_hold(await probe.look())
    between()
    return await probe.look()


def test_readyz_says_one_thing_of_a_database_that_has_just_stopped(database_url: str) -> None:
    with proxied(database_url) as (proxy, url):
        probe = Probe(load_settings(database_url=url, root_key=ROOT_KEY))

        def stop() -> None:
            proxy.fate = lambda _sql: Fate.CUT_BEFORE

        (found,) = asyncio.run(looks_around(probe, stop))
        probe.close()
    assert (found.name, found.ok, found.found) == ("reachable", False, "error 2013")


def test_readyz_does_not_take_an_old_connection_s_end_for_the_database_s(database_url: str) -> None:
    with proxied(database_url) as (proxy, url):
        probe = Probe(load_settings(database_url=url, root_key=ROOT_KEY))
        fates = iter([Fate.CUT_BEFORE])

        def cut_one() -> None:
            proxy.fate = lambda _sql: next(fates, Fate.PASS)

        assert all_hold(asyncio.run(looks_around(probe, cut_one)))
        probe.close()


def url_of(settings: Settings) -> str:
    return settings.database_url.get_secret_value()


def test_nothing_is_wrong_with_a_database_that_was_migrated(own: Settings) -> None:
    assert doctor(url_of(own)) == (0, {})
    assert not_ready(url_of(own)) == {}


def test_the_table_names_each_check(own: Settings) -> None:
    environment = os.environ | {"CUPO_DATABASE_URL": url_of(own), "CUPO_ROOT_KEY": ROOT_KEY, "COLUMNS": "120"}
    command = [sys.executable, "-m", "app", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - our own command
    assert done.returncode == 0
    for name in (
        "reachable",
        "version",
        "isolation",
        "engine of devices",
        "engine of device_registration_locks",
        "migrations",
        "binlog_format",
        "innodb_lock_wait_timeout",
        "wait_timeout",
        "grants on devices",
        "grants on device_registration_locks",
        "row lock",
        "webhooks go by",
    ):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("allowed", "found"),
    [
        ({}, "https, public addresses"),
        ({"webhooks_allow_http": True}, "http and https, public addresses"),
        ({"webhooks_allow_private": True}, "https, any address, private ones too"),
    ],
)
def test_it_shows_where_webhooks_may_go_and_takes_it_for_no_fault(
    own: Settings, allowed: dict[str, bool], found: str
) -> None:
    engine = make_engine(own, pool_size=2)
    (shown,) = (
        check
        for check in all_checks(engine, own.model_copy(update=allowed))
        if check.name == "webhooks go by"
    )
    engine.dispose()
    assert (shown.ok, shown.found, shown.wanted) == (True, found, "https, public addresses")


def test_a_session_that_says_repeatable_read_is_refused_by_name(own: Settings, folder: Path) -> None:
    def falsify(payload: bytes) -> bytes:
        """Isolation level number 2 is REPEATABLE READ; spaces keep the packet's length."""
        return payload.replace(b"'READ-COMMITTED'", b"2".ljust(16))

    with proxied(url_of(own)) as (proxy, url):
        proxy.rewrite = falsify
        status, failed = doctor(url)
        assert status == 1
        assert "REPEATABLE-READ" in failed["isolation"]
        with running_service(url, folder) as service:
            answer = httpx.get(f"{service.url}/readyz")
            assert answer.status_code == 503
            named = {check["name"]: check["found"] for check in answer.json()["checks"] if not check["ok"]}
            assert "REPEATABLE-READ" in named["isolation"]
            proxy.statements.clear()
            answer = one_by_one(service, [register(1, "a")])[0]
        assert answer.json()["code"] == "database_unavailable"
        assert not any("INSERT" in statement for statement in proxy.statements)


def test_a_myisam_lock_table_is_refused_by_name(server: Server, own: Settings) -> None:
    with server.admin_connection("cupo_test_doctor") as admin:
        admin.exec_driver_sql("ALTER TABLE device_registration_locks ENGINE = MyISAM")
    status, failed = doctor(url_of(own))
    assert status == 1
    assert failed == {"engine of device_registration_locks": "MyISAM", "row lock": "does not block"}
    assert not_ready(url_of(own)) == {"engine of device_registration_locks": "MyISAM"}


def test_a_schema_that_is_not_at_head_is_refused_by_name(own: Settings) -> None:
    migrate(own, "base")
    status, failed = doctor(url_of(own))
    assert status == 1
    assert failed["migrations"] == "none"
    assert not_ready(url_of(own))["migrations"] == "none"


def test_an_account_that_may_only_read_is_refused_by_name(server: Server, own: Settings) -> None:
    if not server.is_private:
        pytest.skip("needs a private server, to make an account on it")
    with server.admin_connection() as admin:
        admin.exec_driver_sql("DROP USER IF EXISTS 'reader'@'%%'")
        admin.exec_driver_sql("CREATE USER 'reader'@'%%' IDENTIFIED BY 'reader'")
        admin.exec_driver_sql("GRANT SELECT ON cupo_test_doctor.* TO 'reader'@'%%'")
    status, failed = doctor(server.url(own.url.database or "", "reader", "reader"))
    assert status == 1
    assert failed["grants on devices"] == "no INSERT, UPDATE, DELETE"


def test_a_binary_log_by_statement_is_refused_by_name(own: Settings) -> None:
    with proxied(url_of(own)) as (proxy, url):
        proxy.rewrite = _claim_statement_format
        assert doctor(url) == (1, {"binlog_format": "STATEMENT"})


def _claim_statement_format(payload: bytes) -> bytes:
    """In place of the variables, have the server say what one that logs by statement would."""
    asked = b"SHOW SESSION VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')"
    said = b"SELECT 'log_bin','ON' UNION ALL SELECT 'binlog_format','STATEMENT'"
    return payload.replace(asked, said.ljust(len(asked)))


def test_a_database_that_is_not_there_is_named_unreachable(own: Settings) -> None:
    nowhere = own.url.set(port=1).render_as_string(hide_password=False)
    assert doctor(nowhere) == (1, {"reachable": "error 2003, cannot connect"})


def test_who_is_not_let_in_reads_why_and_no_name(own: Settings) -> None:
    def found_by(url: URL) -> str:
        status, failed = doctor(url.render_as_string(hide_password=False))
        assert (status, list(failed)) == (1, ["reachable"])
        return failed["reachable"]

    assert found_by(own.url.set(password="wrong")) == "error 1045, access denied"
    # Some servers do not tell an account without rights whether there is such a database.
    assert found_by(own.url.set(database="none")).startswith(("error 1049, unknown database", "error 1044"))


def test_a_table_that_is_missing_is_told_once(server: Server) -> None:
    with fresh_database(server, "cupo_test_empty") as url:
        status, failed = doctor(url)
    assert status == 1
    assert failed["migrations"] == "none"
    assert failed["engine of devices"] == "no such table"
    assert not any(name.startswith("grants on") for name in failed)


def test_the_embedded_default_passes_too(tmp_path: Path) -> None:
    settings = load_settings(database_url=f"sqlite:///{tmp_path}/cupo.db")
    migrate(settings)
    assert doctor(url_of(settings)) == (0, {})


def test_a_warning_is_shown_as_such_and_stops_nothing(monkeypatch: pytest.MonkeyPatch, own: Settings) -> None:
    checks = [
        Check("must", ok=True, found="a", wanted="a"),
        Check("should", False, "b", "c", is_required=False),
    ]
    monkeypatch.setattr("app.cli.all_checks", lambda *_: checks)
    monkeypatch.setattr("app.ops.health.cheap_checks", lambda *_: checks)
    told = CliRunner().invoke(cli, ["doctor", "--json"], env={"CUPO_DATABASE_URL": url_of(own)})
    assert told.exit_code == 0
    assert [(check["name"], check["status"]) for check in json.loads(told.stdout)["checks"]] == [
        ("must", "ok"),
        ("should", "warn"),
    ]
    assert re.search("WARN.*should", CliRunner().invoke(cli, ["doctor"]).stdout)
    assert asyncio.run(_ask_ready(own)) == 200


async def _ask_ready(settings: Settings) -> int:
    app = create_app(settings)
    app.state.probe = Probe(settings)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://cupo") as client:
        answer = await client.get("/readyz")
    app.state.probe.close()
    return answer.status_code
