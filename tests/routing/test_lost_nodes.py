"""Nodes that die, hang, vanish or may not be written: their users' calls go elsewhere, and come back."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy.engine import make_url

from app.db import Database, Tx
from app.errors import DatabaseUnavailable
from app.nodes import ANSWER_SECONDS
from loadtest.ports import LOOPBACK
from tests.proxy import proxied
from tests.routing.conftest import (
    CALLERS,
    USERS,
    Load,
    Pair,
    port,
    port_of,
    set_read_only,
    url_at,
    user_at,
    wait_until,
)
from tests.use_cases import list_devices, register

pytestmark = pytest.mark.locking

BUDGET_SECONDS = 5.0


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


# MySQL Internals, "Protocol::HandshakeV10": version, thread, salt, capabilities (TLS among them), charset and
# status.
GREETING = (
    b"\x0a8.4.0\0\x01\0\0\0saltsalt\0"
    b"\xff\xff\x2d\x02\0\xff\xdf\x15" + bytes(10) + b"saltsaltsalt\0mysql_native_password\0"
)


@contextmanager
def silent_server(said: bytes) -> Iterator[str]:
    """Accepts connections, says this, and nothing more."""
    accepted: list[socket.socket] = []
    listener = socket.create_server((LOOPBACK, 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                client.sendall(said)
                accepted.append(client)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for client in accepted:
            client.close()


@pytest.mark.parametrize(
    "said", [b"", len(GREETING).to_bytes(3, "little") + b"\0" + GREETING], ids=["nothing", "a greeting"]
)
def test_a_node_that_accepts_and_never_answers_costs_its_first_calls_a_second(
    said: bytes, pair: Pair
) -> None:
    url = make_url(pair.url).difference_update_query(["ssl_disabled"]).render_as_string(hide_password=False)
    with silent_server(said) as host, pair.database(pair.hosts[0], host, database_url=url) as db:
        user, began = user_at(db, host), time.monotonic()
        assert db.of_user(user).transact(register, user, "a").created
        first_seconds = time.monotonic() - began
        assert db.node_of(user).name == pair.hosts[0]
        for _ in range(5):
            user, began = next(USERS), time.monotonic()
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


def test_a_cluster_of_which_no_node_answers_keeps_the_calls_that_wait_for_it(pair: Pair) -> None:
    """It has lost a node and goes on once that is agreed: a call that was cut off had to begin anew."""
    runs: list[int] = []
    with (
        proxied(url_at(pair, pair.hosts[0])) as (one, _),
        proxied(url_at(pair, pair.hosts[1])) as (other, _),
        pair.database(f"{LOOPBACK}:{one.port}", f"{LOOPBACK}:{other.port}") as db,
        ThreadPoolExecutor(1) as threads,
    ):

        def ask_a_silent_node(tx: Tx) -> int:
            runs.append(port(tx))
            for proxy in (one, other):
                proxy.freeze()
            return port(tx)

        asking = threads.submit(db.transact, ask_a_silent_node)
        wait_until(lambda: len(runs) == 1 and all(db.node_of(user).is_out for user in range(9)))
        time.sleep(2 * ANSWER_SECONDS)  # so that each is looked at twice
        for proxy in (one, other):
            proxy.thaw()
        assert asking.result() == runs[0]
    assert len(runs) == 1


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


def test_a_call_does_not_wait_for_the_next_look_at_the_node_that_it_lost(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def lose_the_node_once(tx: Tx) -> int:
        runs.append(port(tx))
        if len(runs) == 1:
            pair.servers[1].kill()
        return port(tx)

    with pair.database() as db:
        user = user_at(db, pair.hosts[1])
        time.sleep(0.1)  # the first look is over
        monkeypatch.setattr("app.nodes.LOOK_SECONDS", 60)
        time.sleep(0.6)  # and the second, so that the third is a minute away
        try:
            assert db.of_user(user).transact(lose_the_node_once) == pair.servers[0].port
            assert len(runs) == 2
        finally:
            pair.servers[1].start()


def test_without_a_fit_node_nothing_is_read_from_one_that_was_fit(pair: Pair) -> None:
    with pair.database(lock_budget_seconds=2) as db:
        db.open_connections()
        user = user_at(db, pair.hosts[0])
        for server in pair.servers:
            set_read_only(server, on=True)
        try:
            wait_until(lambda: all(node.is_out for node in map(db.node_of, range(1, 9))))

            def is_refused() -> bool:
                try:
                    list_devices_of(db, user)
                except DatabaseUnavailable:
                    return True
                return False

            wait_until(is_refused)  # the connections that were idle are closed a moment later
        finally:
            for server in pair.servers:
                set_read_only(server, on=False)


def test_without_a_fit_node_calls_say_so_and_go_on_when_one_is_back(pair: Pair) -> None:
    for server in pair.servers:
        set_read_only(server, on=True)
    try:
        with pair.database(lock_budget_seconds=10) as db, ThreadPoolExecutor(1) as threads:
            user = user_at(db, pair.hosts[0])
            wait_until(lambda: all(node.is_out for node in map(db.node_of, range(1, 9))))
            waiting = threads.submit(db.of_user(user).transact, register, user, "a")
            set_read_only(pair.servers[1], on=False)
            assert waiting.result().created
            assert port_of(db.node_of(user).name) == pair.servers[1].port
    finally:
        for server in pair.servers:
            set_read_only(server, on=False)
