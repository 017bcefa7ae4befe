"""The schema's versions: where the database is, where it must be, and how it gets there."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from alembic import command
from app import embedded
from app.db import make_engine
from app.dialects import SessionRefused
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
    engine = make_engine(settings, pool_size=1, patience_seconds=PATIENCE_SECONDS)
    try:
        with engine.connect() as connection, _alone(connection):
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


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold the database's migration lock (MySQL manual, "Locking Functions"). SQLite has one writer."""
    if connection.dialect.name == "sqlite":
        yield
        connection.commit()
        return
    name = {"name": f"cupo_migrate.{connection.engine.url.database}"[:64]}
    got = connection.execute(text(f"SELECT GET_LOCK(:name, {PATIENCE_SECONDS // 2})"), name).scalar()
    if got != 1:
        raise MigrationBusy("another process is migrating this database and has not finished")
    try:
        yield
        connection.commit()
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), name)
        connection.rollback()
