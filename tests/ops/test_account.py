"""The rights that `docs/database.md` grants are enough; `cupo doctor` names those beyond them."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.db import Database
from app.engines import make_engine
from app.migrations import MigrationFailed, migrate
from app.ops.checks import Check, all_checks
from app.settings import load_settings
from app.worker import Swept, run_once
from tests.callers import one_by_one, register
from tests.databases import migrated_database
from tests.proxy import proxied
from tests.servers import Server, documented_sql, fresh_database, private_server
from tests.services import ROOT_KEY, running_service

pytestmark = pytest.mark.locking

NAME = "cupo_test_account"
OTHER = "cupo_test_other"
NOBODY_S_PASSWORD = "no account has it"


@pytest.fixture(scope="module")
def own(server: Server) -> Iterator[str]:
    if not server.is_private:
        pytest.skip("needs a private server, to change an account's rights on it")
    with migrated_database(server, NAME) as url:
        yield url


def run_as_admin(server: Server, *statements: str) -> None:
    with server.admin_connection() as admin:
        for statement in statements:
            admin.exec_driver_sql(statement.replace("%", "%%"))


def checks_of(url: str) -> dict[str, Check]:
    settings = load_settings(database_url=url, root_key="off")
    engine = make_engine(settings, pool_size=2)
    try:
        return {check.name: check for check in all_checks(engine, settings)}
    finally:
        engine.dispose()


def test_the_documented_accounts_migrate_check_and_serve_and_no_more(server: Server, folder: Path) -> None:
    if not server.is_private:
        pytest.skip("needs a private server, to make accounts on it")
    with ExitStack() as stack:
        for leftover in ("DATABASE cupo", "USER 'cupo'@'%'", "USER 'cupo_migrate'@'%'"):
            stack.callback(run_as_admin, server, f"DROP {leftover}")
        ours = [statement for statement in documented_sql() if "REQUIRE" not in statement]
        run_as_admin(server, *ours)
        url = server.url("cupo", "cupo", "a-password-of-your-own")
        owner = server.url("cupo", "cupo_migrate", "another-password-of-your-own")
        both = load_settings(database_url=url, migration_database_url=owner)
        for revision in (None, "base", None):
            migrate(both, revision)
        checks = checks_of(url)
        assert [check for check in checks.values() if not check.ok] == []
        assert checks["needless rights"].found == "none"
        with running_service(url, folder) as service:
            assert one_by_one(service, [register(1, "a")])[0].status_code == 201


NEEDLESS = [
    (("GRANT CREATE ON `cupo\\_test\\_account`.* TO {app}",), "CREATE on `cupo\\_test\\_account`.*"),
    (("GRANT ALL ON `cupo\\_test\\_account`.* TO {app}",), "ALL PRIVILEGES on `cupo\\_test\\_account`.*"),
    (("GRANT FILE ON *.* TO {app}",), "FILE on *.*"),
    (("GRANT SELECT ON *.* TO {app}",), "SELECT on *.*"),
    (("GRANT SELECT ON mysql.* TO {app}",), "SELECT on `mysql`.*"),
    (("GRANT SELECT ON `cupo%`.* TO {app}",), "SELECT on `cupo%`.*"),
    (("GRANT DROP ON cupo_test_account.devices TO {app}",), "DROP on `cupo_test_account`.`devices`"),
    (
        ("GRANT REFERENCES (user_id) ON cupo_test_account.devices TO {app}",),
        "REFERENCES on `cupo_test_account`.`devices`",
    ),
    (
        ("CREATE ROLE cupo_ddl", "GRANT ALTER ON cupo_test_account.* TO cupo_ddl", "GRANT cupo_ddl TO {app}"),
        "the role `cupo_ddl`",
    ),
    (
        (
            "CREATE ROLE cupo_ddl",
            "GRANT ALTER ON cupo_test_account.* TO cupo_ddl",
            "GRANT cupo_ddl TO {app}",
            "SET DEFAULT ROLE cupo_ddl {for} {app}",
        ),
        "ALTER on `cupo_test_account`.*",
    ),
]


@pytest.mark.parametrize(("statements", "found"), NEEDLESS, ids=[found for _, found in NEEDLESS])
def test_a_right_that_is_not_needed_is_a_warning_that_names_it(
    server: Server, own: str, statements: tuple[str, ...], found: str
) -> None:
    account = f"'{server.app_user}'@'%'"
    words = {"app": account, "for": "FOR" if server.kind == "mariadb" else "TO"}
    before = rights_of(server)  # other tests have databases too, which count as needless
    documented = [grant for grant in before if NAME in grant.replace("\\", "")]
    afresh = ("DROP ROLE IF EXISTS cupo_ddl", f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {account}")
    try:
        run_as_admin(server, *afresh, *documented)
        run_as_admin(server, *(statement.format_map(words) for statement in statements))
        checks = checks_of(own)
        run_as_admin(server, *afresh, *documented)
        checks_without = checks_of(own)
    finally:
        run_as_admin(server, *afresh, *before)
    assert checks["needless rights"].status == "warn"
    assert checks["needless rights"].found.removesuffix("@`%`") == found
    assert [check for check in checks.values() if check.status == "fail"] == []
    assert checks_without["needless rights"].ok


def rights_of(server: Server) -> list[str]:
    """The GRANTs of the service's account on single databases, to be given back."""
    with server.admin_connection() as admin:
        grants = admin.exec_driver_sql(f"SHOW GRANTS FOR '{server.app_user}'@'%%'").scalars().all()
    return [grant for grant in grants if " ON *.* " not in grant and " ON " in grant]


def test_an_administrator_s_rights_are_named_in_a_few_words(server: Server, own: str) -> None:
    del own  # it is there
    found = checks_of(server.url(NAME, server.admin_user))["needless rights"]
    assert found.status == "warn"
    assert "on *.*" in found.found
    assert len(found.found) < 300


def test_a_right_that_is_taken_away_costs_503_and_the_log_names_it_until_it_is_back(
    server: Server, own: str, folder: Path
) -> None:
    on = f"ON `cupo\\_test\\_account`.* {{}} '{server.app_user}'@'%'"
    with running_service(own, folder, database_pool_size=1) as service:
        assert one_by_one(service, [register(1, "before")])[0].status_code == 201
        for number, (right, error) in enumerate((("INSERT", "1142"), ("ALL", "1044"))):
            run_as_admin(server, f"REVOKE {right} {on.format('FROM')}")
            end_sessions(server)  # which keep the rights that they began with
            answer = one_by_one(service, [register(1, f"without-{number}")])[0]
            assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
            assert re.search(rf"Gave up after run \d+: \({error}, .*denied", service.logged())
            run_as_admin(server, f"GRANT SELECT, INSERT, UPDATE, DELETE {on.format('TO')}")
            answer = one_by_one(service, [register(2, f"again-{number}")])[0]
            assert answer.status_code == 201


def end_sessions(server: Server) -> None:
    with server.admin_connection() as admin:
        for session in admin.exec_driver_sql("SHOW PROCESSLIST").mappings().all():
            if session["db"] == NAME and session["User"] == server.app_user:
                admin.exec_driver_sql(f"KILL {session['Id']:d}")


def test_the_service_s_account_cannot_migrate_and_the_other_can(server: Server) -> None:
    if not server.is_private:
        pytest.skip("has one account for everything")
    with fresh_database(server, OTHER) as owner:
        url = server.url(OTHER)
        with pytest.raises(MigrationFailed, match="denied"):
            migrate(load_settings(database_url=url))
        migrate(load_settings(database_url=url, migration_database_url=owner))
        assert checks_of(url)["migrations"].ok


def test_only_migrate_opens_the_account_of_migrations(own: str, server: Server, folder: Path) -> None:
    unusable = server.url(NAME, server.migration_user, NOBODY_S_PASSWORD)
    file = folder / "devices.csv"
    file.write_text("user_id,device_id\n7,a\n")
    assert run(own, unusable, "migrate") == 1
    assert run(own, unusable, "doctor") == 0
    assert run(own, unusable, "import", str(file)) == 0
    with running_service(own, folder, migration_database_url=unusable) as service:
        assert one_by_one(service, [register(1, "a")])[0].status_code == 201
    settings = load_settings(database_url=own, migration_database_url=unusable, root_key=ROOT_KEY)
    database = Database(settings)
    assert run_once(database, settings) == Swept()
    database.close()


def run(url: str, migration_url: str, *words: str) -> int:
    environment = {"CUPO_DATABASE_URL": url, "CUPO_MIGRATION_DATABASE_URL": migration_url}
    return CliRunner().invoke(cli, list(words), env=environment).exit_code


def test_migrations_by_another_way_to_the_same_server_are_let_through(server: Server) -> None:
    with fresh_database(server, OTHER) as owner, proxied(owner) as (_, roundabout):
        url = server.url(OTHER)
        migrate(load_settings(database_url=url, migration_database_url=roundabout))
        assert checks_of(url)["migrations"].ok


def test_migrations_of_another_server_are_refused_before_anything_is_changed(server: Server) -> None:
    with (
        fresh_database(server, OTHER),
        private_server(server.kind) as other,
        fresh_database(other, OTHER) as owner,
    ):
        settings = load_settings(database_url=server.url(OTHER), migration_database_url=owner)
        with pytest.raises(MigrationFailed, match="leads to another server"):
            migrate(settings)
        with other.admin_connection(OTHER) as admin:
            assert admin.exec_driver_sql("SHOW TABLES").all() == []
