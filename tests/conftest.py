"""What the tests share: one real server, one migrated database, one running service."""

import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url

from app.db import Database
from app.settings import Settings, load_settings
from tests.databases import migrated_database
from tests.servers import Server, server_under_test
from tests.services import PATIENT, ROOT_KEY, Service, running_service


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=("mariadb", "mysql", "galera", "group-replication"),
        default="mariadb",
        help="the database server to test on",
    )


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shell has set must not decide what a test finds."""
    for name in list(os.environ):
        if name.startswith("CUPO_") and name != "CUPO_TEST_DATABASE_URL":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A private server; never stopped or paused by a test that does not start one of its own."""
    with server_under_test(pytestconfig.getoption("--server")) as server:
        yield server


@pytest.fixture(scope="session")
def database_url(server: Server) -> Iterator[str]:
    """A database at head, for the account of the service. Tests share it and keep apart by `new_user`."""
    with migrated_database(server, "cupo_test") as url:
        yield url


@pytest.fixture
def settings(database_url: str) -> Settings:
    return load_settings(database_url=database_url, root_key=ROOT_KEY)


@pytest.fixture
def db(settings: Settings) -> Iterator[Database]:
    database = Database(settings)
    yield database
    database.close()


@pytest.fixture(scope="session")
def auditor(database_url: str) -> Iterator[Engine]:
    """Connections that have nothing of the service: plain autocommit, to look and to interfere."""
    engine = create_engine(make_url(database_url), isolation_level="AUTOCOMMIT", pool_size=5)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def service(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One worker, limit 2, patient, everything else at its default."""
    folder = tmp_path_factory.mktemp("service")
    with running_service(database_url, folder, default_device_limit=2, **PATIENT) as running:
        yield running


@pytest.fixture(scope="session")
def api(service: Service) -> Iterator[httpx.Client]:
    """Calls of `service` with its key."""
    with service.client() as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


_users = itertools.count(secrets.randbelow(2**40) + 1)


@pytest.fixture(scope="session")
def new_user() -> Callable[[], int]:
    """A user that no test has used yet."""
    return lambda: next(_users)
