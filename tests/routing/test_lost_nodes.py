"""Nodes that die, hang, vanish or may not be written: their users' calls go elsewhere, and come back."""

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from app.db import Database, Tx
from loadtest.ports import LOOPBACK
from tests.proxy import proxied
from tests.routing.conftest import Pair, port_of, set_read_only, url_at, wait_until
from tests.use_cases import list_devices, register

pytestmark = pytest.mark.locking

CALLERS = 8
BUDGET_SECONDS = 5.0
_numbers = itertools.count(1)


def user_at(db: Database, host: str) -> int:
    """A user that no test has used yet, and that prefers this node."""
    return next(user for user in _numbers if db.node_of(user).name == host)


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
            user, began = next(_numbers), time.monotonic()
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


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log says of nodes."""
    caplog.set_level(logging.INFO, logger="app.nodes")
    return lambda: [one.getMessage() for one in caplog.records if one.name == "app.nodes"]


def test_a_killed_node_costs_its_users_time_and_no_call_and_is_used_again_when_it_is_back(
    pair: Pair, told: Callable[[], list[str]]
) -> None:
    lost, lost_host = pair.servers[1], pair.hosts[1]
    with pair.database() as db:
        own = user_at(db, lost_host)
        load = Load(db)
        with load.going_on():
            load.go_on_for(30)
            lost.kill()
            try:
                load.go_on_for(100)
                assert db.node_of(own).name == pair.hosts[0]
            finally:
                lost.start()
            wait_until(lambda: db.node_of(own).name == lost_host)
            load.go_on_for(100)
        assert load.longest_seconds < BUDGET_SECONDS
        assert db.of_user(own).transact(port) == lost.port
    out, back = told()
    assert out.startswith(f"Database node {lost_host} is taken out: ")
    assert back.startswith(f"Database node {lost_host} is in use again, after ")


def test_a_node_whose_packets_vanish_costs_its_users_time_and_no_call(pair: Pair) -> None:
    with proxied(url_at(pair, pair.hosts[1])) as (proxy, _):
        vanishing = f"{LOOPBACK}:{proxy.port}"
        with pair.database(pair.hosts[0], vanishing, database_pool_size=CALLERS) as db:
            own = user_at(db, vanishing)
            load = Load(db)
            with load.going_on():
                load.go_on_for(30)
                proxy.freeze()
                load.go_on_for(1000)
                assert db.node_of(own).name == pair.hosts[0]
                proxy.thaw()
                wait_until(lambda: db.node_of(own).name == vanishing)
            assert load.longest_seconds < BUDGET_SECONDS


def test_a_node_that_accepts_and_never_answers_costs_its_first_calls_a_second(pair: Pair) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        host = f"{LOOPBACK}:{silent.getsockname()[1]}"
        with pair.database(pair.hosts[0], host) as db:
            user, began = user_at(db, host), time.monotonic()
            assert db.of_user(user).transact(register, user, "a").created
            first_seconds = time.monotonic() - began
            assert db.node_of(user).name == pair.hosts[0]
            for _ in range(5):
                user, began = next(_numbers), time.monotonic()
                db.of_user(user).transact(register, user, "a")
                assert time.monotonic() - began < 0.9
    assert 0.9 < first_seconds < BUDGET_SECONDS / 2


def test_a_node_that_becomes_read_only_is_left_in_the_middle_of_a_call_and_not_read_either(
    pair: Pair,
) -> None:
    demoted, host = pair.servers[1], pair.hosts[1]
    with pair.database() as db:
        user = user_at(db, host)
        db.of_user(user).open_connections()
        ports = []

        def register_where_it_can_be_written(tx: Tx) -> object:
            ports.append(port(tx))
            if len(ports) == 1:
                set_read_only(demoted, on=True)
            return register(tx, user, "a")

        try:
            assert db.of_user(user).transact(register_where_it_can_be_written)
            assert ports[0] == demoted.port
            assert ports[-1] == pair.servers[0].port
            assert list_devices_of(db, user) == ["a"], "read where it was written"
        finally:
            set_read_only(demoted, on=False)
        wait_until(lambda: db.node_of(user).name == host)


def list_devices_of(db: Database, user: int) -> list[str]:
    found, _ = db.of_user(user).transact(list_devices, user, read_only=True)
    return [device.device_id for device in found]


def test_an_idle_node_that_becomes_read_only_is_left_before_a_call_reads_what_is_old(pair: Pair) -> None:
    demoted, host = pair.servers[1], pair.hosts[1]
    with pair.database() as db:
        db.open_connections()
        user = user_at(db, host)
        set_read_only(demoted, on=True)
        try:
            wait_until(lambda: db.node_of(user).name != host)
            assert db.of_user(user).transact(port, read_only=True) == pair.servers[0].port
        finally:
            set_read_only(demoted, on=False)


def test_a_node_that_is_read_only_from_the_start_gets_no_call(pair: Pair) -> None:
    demoted, host = pair.servers[1], pair.hosts[1]
    set_read_only(demoted, on=True)
    try:
        with pair.database() as db:
            for user in range(1, 21):
                assert db.of_user(user).transact(port, read_only=True) == pair.servers[0].port, host
    finally:
        set_read_only(demoted, on=False)


def test_one_lost_connection_is_no_lost_node(pair: Pair, told: Callable[[], list[str]]) -> None:
    runs: list[int] = []

    def die_once(tx: Tx) -> int:
        runs.append(port(tx))
        if len(runs) == 1:
            connection = tx.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
            with pair.servers[1].admin_connection() as admin:
                admin.exec_driver_sql(f"KILL {connection:d}")
        return port(tx)

    with pair.database() as db:
        user = user_at(db, pair.hosts[1])
        db.of_user(user).transact(die_once)
        wait_until(lambda: db.node_of(user).name == pair.hosts[1])
    assert len(runs) == 2
    assert told() == []


def test_without_a_fit_node_calls_say_so_and_go_on_when_one_is_back(pair: Pair) -> None:
    for server in pair.servers:
        set_read_only(server, on=True)
    try:
        with pair.database() as db, ThreadPoolExecutor(1) as threads:
            user = user_at(db, pair.hosts[0])
            wait_until(lambda: all(node.is_out for node in map(db.node_of, range(1, 9))))
            waiting = threads.submit(db.of_user(user).transact, register, user, "a")
            set_read_only(pair.servers[1], on=False)
            assert waiting.result().created
            assert port_of(db.node_of(user).name) == pair.servers[1].port
    finally:
        for server in pair.servers:
            set_read_only(server, on=False)
