"""A database of their own, empty for each test: a worker is about all that is there."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

from app.db import Database
from app.migrations import migrate
from app.settings import Settings, load_settings
from app.tables import metadata
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY
from tests.webhooks.managed import BY_HAND
from tests.webhooks.recording import Recorder, recording


@pytest.fixture(scope="module")
def _migrated(server: Server) -> Iterator[Settings]:
    with fresh_database(server, "cupo_test_webhooks") as url:
        settings = load_settings(
            database_url=url, root_key=ROOT_KEY, webhooks_allow_http=True, webhooks_allow_private=True
        )
        migrate(settings)
        yield settings


@pytest.fixture
def own(_migrated: Settings, engine: Engine) -> Settings:
    """Settings of a database where nothing has happened yet."""
    with engine.connect() as connection:
        for table in metadata.tables:
            connection.exec_driver_sql(f"TRUNCATE {table}")
    return _migrated


@pytest.fixture
def own_db(own: Settings) -> Iterator[Database]:
    database = Database(own)
    yield database
    database.close()


@pytest.fixture
def engine(_migrated: Settings) -> Iterator[Engine]:
    """Plain autocommit, to look and to interfere."""
    made = create_engine(_migrated.url, isolation_level="AUTOCOMMIT")
    yield made
    made.dispose()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as running:
        yield running


@pytest.fixture
def none_left(auditor: Engine) -> Iterator[None]:
    """The database is shared, and what is told to endpoints is of everybody's."""
    yield
    with auditor.connect() as connection:
        for table in ("webhook_deliveries", "webhook_endpoints"):
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608 - our own names
        connection.execute(text("DELETE FROM events WHERE request_id = :mark"), {"mark": BY_HAND})
