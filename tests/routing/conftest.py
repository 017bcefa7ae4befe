"""Two servers that do not replicate: where a row is shows which of them a call went to."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.db import Database, Tx
from app.settings import Settings, load_settings
from tests.databases import migrated_database
from tests.servers import Server, private_server
from tests.services import POLL_SECONDS, ROOT_KEY, Service, running_service
from tests.use_cases import register

PATIENCE_SECONDS = 30
NAME = "cupo_test_routing"
CALLERS = 8
USERS = itertools.count(1)  # none is used twice


@dataclass(frozen=True)
class Pair:
    """Both have the same accounts. `multi_writer` is on: nothing else says that they belong together."""

    servers: tuple[Server, Server]

    @property
    def url(self) -> str:
        """Without TLS, of which a proxy between would see nothing."""
        return f"{self.servers[0].url(NAME)}&ssl_disabled=true"

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"{server.host}:{server.port}" for server in self.servers)

    def settings(self, *hosts: str, **others: Any) -> Settings:
        named = ",".join(hosts or self.hosts)
        own = {"database_url": self.url, "multi_writer": "on", "root_key": ROOT_KEY}
        return load_settings(database_hosts=named, **(own | others))

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


def user_at(db: Database, host: str) -> int:
    """A user that no test has used yet, and that prefers this node."""
    return next(user for user in USERS if db.node_of(user).name == host)


def port(tx: Tx) -> int:
    found: int = tx.exec_driver_sql("SELECT @@port").scalar_one()
    return found


@dataclass
class Load:
    """Callers without a pause, each for new users. A call that fails ends the test."""

    db: Database
    done: int = 0
    longest_seconds: float = 0.0
    _ending: threading.Event = field(default_factory=threading.Event)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def _call(self) -> None:
        while not self._ending.is_set():
            user, began = next(USERS), time.monotonic()
            assert self.db.of_user(user).transact(register, user, "a").created
            with self._counting:
                self.done += 1
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with ThreadPoolExecutor(CALLERS) as threads:
            calls = [threads.submit(self._call) for _ in range(CALLERS)]
            try:
                yield
            finally:
                self._ending.set()
        for call in calls:
            call.result()

    def go_on_for(self, calls: int) -> None:
        wanted = self.done + calls
        wait_until(lambda: self.done >= wanted)
