"""The migrations lead to exactly the tables that the code speaks of, on each database, and back."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine

from app import migrations
from app.engines import make_engine
from app.migrations import head, migrate
from app.settings import Settings, load_settings
from app.tables import metadata
from tests.processes import started
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY

pytestmark = pytest.mark.locking


@pytest.fixture
def empty(server: Server) -> Iterator[Settings]:
    with fresh_database(server, "cupo_test_migrations") as url:
        yield load_settings(database_url=url, root_key=ROOT_KEY)


def definitions(settings: Settings) -> dict[str, str]:
    """What the database itself says that each table is."""
    engine: Engine = make_engine(settings, pool_size=1)
    with engine.connect() as connection:
        found = {}
        for table in metadata.tables:
            if settings.is_embedded:
                found[table] = _sqlite_definition(connection, table)
            else:
                found[table] = _mysql_definition(connection, table)
        connection.rollback()
    engine.dispose()
    return {table: re.sub(r"\s+", " ", sql) for table, sql in found.items()}


def _mysql_definition(connection: Connection, table: str) -> str:
    """Its indexes in the order of their names: SQLAlchemy makes them in any."""
    lines = connection.exec_driver_sql(f"SHOW CREATE TABLE {table}").one()[1].splitlines()
    keys = sorted(line for line in lines if line.startswith("  KEY "))
    return ", ".join(line.rstrip(",") for line in [*(line for line in lines if line not in keys), *keys])


def _sqlite_definition(connection: Connection, table: str) -> str:
    """With its indexes; without the quotes and the order of constraints, which copying a table changes.

    Without parentheses too, of which the constraint that comes last would seem to have one less.
    """
    query = f"SELECT sql FROM sqlite_master WHERE tbl_name = '{table}' AND sql IS NOT NULL ORDER BY name"  # noqa: S608 - our own name
    statements = (
        re.sub(r'[\s"()]+', " ", sql).strip() for sql in connection.exec_driver_sql(query).scalars()
    )
    return " ; ".join(", ".join(sorted(re.split(r"\s*,\s*", sql))) for sql in statements)


def created_from_tables(settings: Settings) -> dict[str, str]:
    engine = make_engine(settings, pool_size=1)
    metadata.create_all(engine)
    engine.dispose()
    return definitions(settings)


def test_the_migrated_schema_is_the_schema_of_the_tables(server: Server, empty: Settings) -> None:
    migrate(empty)
    with fresh_database(server, "cupo_test_tables") as url:
        assert definitions(empty) == created_from_tables(load_settings(database_url=url, root_key=ROOT_KEY))


def test_the_migrated_schema_is_the_schema_of_the_tables_on_sqlite(tmp_path: Path) -> None:
    migrated = load_settings(database_url=f"sqlite:///{tmp_path}/migrated.db")
    migrate(migrated)
    created = load_settings(database_url=f"sqlite:///{tmp_path}/created.db")
    assert definitions(migrated) == created_from_tables(created)


def test_what_was_migrated_can_go_back_and_forth_again(empty: Settings) -> None:
    migrate(empty)
    before = definitions(empty)
    migrate(empty, "base")
    engine = create_engine(empty.url)
    with engine.connect() as connection:
        left = set(connection.exec_driver_sql("SHOW TABLES").scalars())
    engine.dispose()
    assert left == {"alembic_version"}
    migrate(empty)
    assert definitions(empty) == before


def migrated_at_once(settings: Settings, times: int) -> list[tuple[int, str]]:
    """The exit status of each, and what it said."""
    environment = {
        "CUPO_DATABASE_URL": settings.database_url.get_secret_value(),
        "CUPO_ROOT_KEY": ROOT_KEY,
    }
    command = [sys.executable, "-m", "app", "migrate"]
    how = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with ExitStack() as stack:
        replicas = [stack.enter_context(started(command, **how)) for _ in range(times)]
        said = [replica.communicate(timeout=60)[0] for replica in replicas]
    return [(replica.returncode, words) for replica, words in zip(replicas, said, strict=True)]


def test_replicas_that_start_at_once_migrate_once(empty: Settings) -> None:
    assert migrated_at_once(empty, times=4) == [(0, f"The schema is at {head()}.\n")] * 4


def test_replicas_that_start_at_once_migrate_once_on_sqlite(tmp_path: Path) -> None:
    settings = load_settings(database_url=f"sqlite:///{tmp_path}/cupo.db")
    assert [status for status, _said in migrated_at_once(settings, times=4)] == [0, 0, 0, 0]


def test_a_migration_waits_for_the_one_that_runs_and_says_so_when_that_never_ends(
    empty: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "PATIENCE_SECONDS", 2)
    engine = create_engine(empty.url)
    with engine.connect() as other:
        assert (
            other.exec_driver_sql("SELECT GET_LOCK('cupo_migrate.cupo_test_migrations', 0)").scalar_one() == 1
        )
        with pytest.raises(migrations.MigrationBusy):
            migrate(empty)
    engine.dispose()
