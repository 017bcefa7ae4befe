"""Two servers that do not replicate: where a row is shows which of them a call went to."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.db import Database
from app.settings import Settings, load_settings
from tests.databases import migrated_database
from tests.servers import Server, private_server
from tests.services import POLL_SECONDS, ROOT_KEY, Service, running_service

PATIENCE_SECONDS = 30
NAME = "cupo_test_routing"


@dataclass(frozen=True)
class Pair:
    """Both have the same accounts. `multi_writer` is on: nothing else says that they belong together."""

    servers: tuple[Server, Server]

    @property
    def url(self) -> str:
        return self.servers[0].url(NAME)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"{server.host}:{server.port}" for server in self.servers)

    def settings(self, *hosts: str, **others: Any) -> Settings:
        named = ",".join(hosts or self.hosts)
        own: dict[str, Any] = {"multi_writer": "on", "root_key": ROOT_KEY} | others
        return load_settings(database_url=self.url, database_hosts=named, **own)

    @contextmanager
    def database(self, *hosts: str, **others: Any) -> Iterator[Database]:
        made = Database(self.settings(*hosts, **others))
        try:
            yield made
        finally:
            made.close()

    @contextmanager
    def service(self, folder: Path, *hosts: str, **others: Any) -> Iterator[Service]:
        named = ",".join(hosts or self.hosts)
        own: dict[str, Any] = {"multi_writer": "on"} | others
        with running_service(self.url, folder, database_hosts=named, **own) as service:
            yield service


@pytest.fixture(scope="package")
def pair(pytestconfig: pytest.Config) -> Iterator[Pair]:
    kind = pytestconfig.getoption("--server")
    with ExitStack() as running:
        first = running.enter_context(private_server(kind))
        second = running.enter_context(private_server(kind))
        for server in (first, second):
            running.enter_context(migrated_database(server, NAME))
        with second.admin_connection() as admin:
            admin.exec_driver_sql(f"ALTER USER '{first.app_user}'@'%%' IDENTIFIED BY '{first.app_password}'")
        yield Pair((first, replace(second, app_password=first.app_password)))


def set_read_only(server: Server, *, on: bool) -> None:
    with server.admin_connection() as admin:
        admin.exec_driver_sql(f"SET GLOBAL read_only = {int(on)}")


def wait_until(happened: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(POLL_SECONDS)


def port_of(host: str) -> int:
    return int(host.rpartition(":")[2])


def url_at(pair: Pair, host: str) -> str:
    """The service's URL of one of the hosts."""
    return make_url(pair.url).set(port=port_of(host)).render_as_string(hide_password=False)
