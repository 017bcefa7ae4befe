"""A database of its own for each test: the audit is about all users."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine

from app.db import Database
from app.migrations import migrate
from app.settings import Settings, load_settings
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY
from tests.use_cases import LIMIT


@pytest.fixture
def own(server: Server) -> Iterator[Settings]:
    with fresh_database(server, "cupo_test_audit") as url:
        settings = load_settings(database_url=url, root_key=ROOT_KEY, default_device_limit=LIMIT)
        migrate(settings)
        yield settings


@pytest.fixture
def own_db(own: Settings) -> Iterator[Database]:
    database = Database(own)
    yield database
    database.close()


@pytest.fixture
def rows(own: Settings) -> Iterator[Engine]:
    """Connections that write past the service."""
    engine = create_engine(own.url, isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()
