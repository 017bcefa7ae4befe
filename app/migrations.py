"""The schema's versions: where the database is, where it must be, and how it gets there."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import text
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import SQLAlchemyError

from alembic import command
from app import embedded
from app.engines import make_engine
from app.sessions import SessionRefused
from app.settings import Settings

SCRIPTS = Path(__file__).parent.parent / "alembic"
PATIENCE_SECONDS = 600


class MigrationFailed(Exception):
    """The schema is not at the revision that was asked for; its text is one line."""


class MigrationBusy(MigrationFailed):
    """Another process has been migrating for all of the time that this one was willing to wait."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    return config


@cache
def head() -> str:
    """The revision that this version of the service needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None  # noqa: S101 - the scripts are part of the service
    return revision


@cache
def own_revisions() -> frozenset[str]:
    """All that this version of the service knows of. Another one in the database is a later version's."""
    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def migrate(settings: Settings, revision: str | None = None) -> None:
    """Bring the schema to `revision`, by default the head. Does nothing where it is there already.

    Several processes may call this at once: one migrates, the others wait and find nothing to do. Raises
    MigrationFailed.
    """
    if settings.is_embedded:
        embedded.folder(settings)
    engine = make_engine(settings.of_migrations, pool_size=1, patience_seconds=PATIENCE_SECONDS)
    try:
        with engine.connect() as connection, _alone(connection):
            _require_same_server(connection, settings)
            config = _config()
            config.attributes["connection"] = connection
            if revision is None:
                command.upgrade(config, "head")
            else:
                command.downgrade(config, revision)
    except SQLAlchemyError as error:
        raise MigrationFailed(f"the database refused: {getattr(error, 'orig', None) or error}") from error
    except (CommandError, SessionRefused) as error:
        raise MigrationFailed(str(error)) from error
    finally:
        engine.dispose()


def migrate_embedded(settings: Settings) -> None:
    """`migrate` for the embedded default, which has nobody else to do it; nothing on any other database."""
    if settings.is_embedded:
        migrate(settings)


def _require_same_server(connection: Connection, settings: Settings) -> None:
    """The service's account must see the migration lock that `connection` holds, at one of its nodes.

    Asked only where the URLs name different hosts; nothing is told of an account that cannot log in.
    """
    ours = settings.of_migrations.url
    if connection.dialect.name == "sqlite":
        return
    if (ours.host, ours.port) in {(url.host, url.port) for url in settings.urls}:
        return
    if not any(_sees_the_lock(connection, settings, url) for url in settings.urls):
        raise MigrationFailed(
            "CUPO_MIGRATION_DATABASE_URL leads to another server than CUPO_DATABASE_URL; nothing was changed"
        )


def _sees_the_lock(connection: Connection, settings: Settings, url: URL) -> bool:
    """Whether the service comes to the same server by this URL; True as well where it cannot log in."""
    engine = make_engine(settings, url, pool_size=1)
    holder = text("SELECT IS_USED_LOCK(:name) = :holder")
    try:
        with engine.connect() as other:
            asked = {
                "name": _lock_name(connection),
                "holder": connection.scalar(text("SELECT CONNECTION_ID()")),
            }
            is_same = bool(other.scalar(holder, asked))
            other.rollback()
            return is_same
    except SQLAlchemyError:
        return True
    finally:
        engine.dispose()


def _lock_name(connection: Connection) -> str:
    return f"cupo_migrate.{connection.engine.url.database}"[:64]


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold the database's migration lock (MySQL manual, "Locking Functions"). SQLite has one writer."""
    if connection.dialect.name == "sqlite":
        yield
        connection.commit()
        return
    name = {"name": _lock_name(connection)}
    got = connection.execute(text(f"SELECT GET_LOCK(:name, {PATIENCE_SECONDS // 2})"), name).scalar()
    if got != 1:
        raise MigrationBusy("another process is migrating this database and has not finished")
    try:
        yield
        connection.commit()
    finally:
        if not connection.invalidated:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), name)
        connection.rollback()
