"""Clients that take long, hold connections or send without end: cut off, in bounded time and memory."""

import re
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import Engine, create_engine, text

from tests import raw
from tests.hostile.conftest import BODY_SECONDS, HEAD_SECONDS, KEEP_ALIVE_SECONDS, MOST_CONNECTIONS
from tests.problems import assert_problem, refused_quietly
from tests.services import ROOT_KEY, Service, running_service

JSON = b"Content-Type: application/json"
LIVE = b"GET /livez HTTP/1.1\r\nHost: a\r\n"
BODY = raw.request("POST", "/v1/users/77/devices", JSON, b"Content-Length: 1000")
NO_BODY = raw.request("DELETE", "/v1/users/77/devices", b"Content-Length: 1000")
CHUNKED = raw.request("POST", "/v1/users/77/devices", JSON, b"Transfer-Encoding: chunked")
# Of a machine that has other things to do; far below what a trickle could take without an end.
SLACK_SECONDS = 4.0
TRICKLE_SECONDS = 0.05
FLOOD_BYTES = 64 * 2**20
MOST_GROWTH_KIB = 16 * 2**10


def trickle(connection: socket.socket, forever: bytes) -> float:
    """Send a byte at a time until something comes back: after how many seconds."""
    began = time.monotonic()
    while not select.select([connection], [], [], TRICKLE_SECONDS)[0]:
        with suppress(ConnectionError):
            connection.send(forever)
        assert time.monotonic() - began < 30, "nobody cuts this off"
    return time.monotonic() - began


SLOW = {
    "a head that stops": (LIVE, b"", "head", HEAD_SECONDS),
    "a head that trickles": (LIVE + b"X-None: ", b"a", "head", HEAD_SECONDS),
    "a request line that trickles": (b"GET /", b"a", "head", HEAD_SECONDS),
    "a body that stops": (BODY, b"", "body", BODY_SECONDS),
    "a body that trickles": (BODY, b" ", "body", BODY_SECONDS),
    "a chunk that trickles": (CHUNKED + b"ff\r\n", b" ", "body", BODY_SECONDS),
    "a trailer that trickles": (CHUNKED + b"0\r\nX-None: ", b"a", "body", BODY_SECONDS),
}


@pytest.mark.parametrize("name", SLOW.keys())
def test_a_request_that_does_not_come_to_its_end_is_408(bounded: Service, name: str) -> None:
    start, more, part, seconds = SLOW[name]
    with raw.connected(bounded) as connection:
        if "trickles" in name:  # on a connection that was good so far
            connection.sendall(LIVE + b"\r\n")
            assert raw.answer_to(LIVE, connection).status == 200
        connection.sendall(start)
        took_seconds = trickle(connection, more)
        (answer,) = raw.answers_of(connection)
    problem = assert_problem(answer, 408, "request_timeout")
    assert problem["detail"] == f"The {part} of the request did not arrive within {seconds:g} s."
    assert answer.headers["connection"] == "close"
    assert seconds - TRICKLE_SECONDS < took_seconds < seconds + SLACK_SECONDS


@pytest.mark.parametrize("more", [b"", b"\r\n"], ids=["silent", "empty lines"])
def test_who_asks_nothing_is_sent_away_without_an_answer(bounded: Service, more: bytes) -> None:
    with raw.connected(bounded) as connection:
        assert trickle(connection, more) < HEAD_SECONDS + SLACK_SECONDS
        assert connection.recv(1) == b""


def test_empty_lines_keep_no_idle_connection_open(bounded: Service) -> None:
    with raw.connected(bounded) as connection:
        connection.sendall(LIVE + b"\r\n")
        assert raw.answer_to(LIVE, connection).status == 200
        assert trickle(connection, b"\r\n") < KEEP_ALIVE_SECONDS + SLACK_SECONDS
        assert connection.recv(1) == b""


@pytest.mark.parametrize("sent", [LIVE, BODY + b"{", NO_BODY + b"{", CHUNKED + b"5\r\n{"])
def test_a_client_that_leaves_within_its_request_is_no_fault_of_the_service(
    bounded: Service, auditor: Engine, sent: bytes
) -> None:
    with refused_quietly(bounded, auditor):
        for _ in range(3):
            with raw.connected(bounded) as connection:
                connection.sendall(sent)
        assert raw.send(bounded, LIVE + b"\r\n").status == 200


def test_a_body_that_trickles_after_its_answer_is_cut_off_too(bounded: Service) -> None:
    with raw.connected(bounded) as connection:
        connection.sendall(BODY.replace(ROOT_KEY.encode(), b"wrong"))
        assert raw.answer_to(BODY, connection).status == 401
        assert trickle(connection, b" ") < BODY_SECONDS + SLACK_SECONDS
        assert connection.recv(1) == b""


def test_a_request_that_comes_in_pieces_in_time_is_answered(
    bounded: Service, new_user: Callable[[], int]
) -> None:
    whole = raw.request(
        "POST",
        f"/v1/users/{new_user()}/devices",
        JSON,
        b"Connection: close",
        body=b'{"device_id": "in pieces"}'.replace(b" p", b"-p"),
    )
    (answer,) = raw.all_answers(bounded, *(whole[i : i + 1] for i in range(len(whole))))
    assert (answer.status, answer.json()["device"]["device_id"]) == (201, "in-pieces")


def test_a_call_that_waits_for_a_lock_is_not_cut_off_nor_is_the_body_behind_it(
    bounded: Service, new_user: Callable[[], int], database_url: str
) -> None:
    """That one is sent in time, and not read on: it is the service that is slow."""
    user = new_user()
    path = f"/v1/users/{user}/devices"
    call = raw.request("POST", path, JSON, body=b'{"device_id": "a"}')
    assert raw.send(bounded, call).status == 201
    engine = create_engine(database_url)
    with engine.connect() as holder, raw.connected(bounded) as connection:
        query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
        assert holder.execute(text(query), {"user": user}).all()
        connection.sendall(call)
        connection.sendall(raw.request("POST", path, JSON, body=b" " * 200_000))
        assert select.select([connection], [], [], BODY_SECONDS + 0.5)[0] == []
        holder.rollback()
        received = b""
        while received.count(b"HTTP/1.1 ") < 2:
            received += connection.recv(65_536)
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"413"]
    engine.dispose()


def test_a_client_that_is_refused_while_it_sends_is_not_reset_before_it_can_read_why(
    bounded: Service,
) -> None:
    """Linux would let it read all the same; others throw away what came before a reset."""
    with raw.connected(bounded) as connection:
        connection.sendall(LIVE + b"X-None: " + b"a" * 20_000)
        (answer,) = raw.answers_of(connection)
        assert_problem(answer, 431, "request_header_fields_too_large")
        for _ in range(10):
            connection.send(b"a")
            assert select.select([], [], [connection], TRICKLE_SECONDS)[2] == []


def test_who_does_not_take_an_answer_is_cut_off(bounded: Service) -> None:
    address = urlsplit(bounded.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((address.hostname, address.port))
        # More than the kernel keeps for us.
        connection.sendall(b"GET /docs/assets/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        poll = select.poll()
        poll.register(connection, select.POLLERR | select.POLLHUP)
        assert poll.poll((BODY_SECONDS + SLACK_SECONDS) * 1000), "it waits for us for ever"


def test_one_connection_too_many_is_503_and_room_comes_back(bounded: Service) -> None:
    with ExitStack() as opened:
        held = [opened.enter_context(raw.connected(bounded)) for _ in range(MOST_CONNECTIONS)]
        for connection in held:
            connection.sendall(LIVE)
        answer = raw.send(bounded, LIVE + b"\r\n")
        assert_problem(answer, 503, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        for connection in held:  # those that were there first are served
            connection.sendall(b"\r\n")
            assert raw.answer_to(LIVE, connection).status == 200
    give_up_at = time.monotonic() + SLACK_SECONDS
    while (status := raw.send(bounded, LIVE + b"\r\n").status) != 200:
        assert (status, time.monotonic() < give_up_at) == (503, True)


def test_a_flood_of_connections_is_bounded_also_where_nobody_reads_the_refusals(bounded: Service) -> None:
    with ExitStack() as opened:
        flood = [opened.enter_context(raw.connected(bounded)) for _ in range(5 * MOST_CONNECTIONS)]
        for connection in flood:
            with suppress(ConnectionError):
                connection.sendall(LIVE)
        reset = []
        for connection in flood[2 * MOST_CONNECTIONS :]:
            with suppress(ConnectionError):
                if connection.recv(65_536) != b"":
                    continue
            reset.append(connection)
    assert len(reset) >= 3 * MOST_CONNECTIONS - 1


def test_many_connections_are_served_also_where_a_login_allows_few_files(
    database_url: str, folder: Path
) -> None:
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
        try:
            service = opened.enter_context(running_service(database_url, folder))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
        connections = [opened.enter_context(raw.connected(service)) for _ in range(300)]
        for connection in connections:
            connection.sendall(LIVE + b"\r\n")
        assert {raw.answer_to(LIVE, connection).status for connection in connections} == {200}
        assert raw.send(service, raw.request("GET", "/readyz")).status == 200


@pytest.fixture
def lone(database_url: str, folder: Path) -> Iterator[Service]:
    """Its memory is nobody else's."""
    with running_service(database_url, folder) as running:
        yield running


FLOODS = {
    "a field without end": (LIVE + b"X-None: ", b"a" * 2**16, 431),
    "a request line without end": (b"GET /", b"a" * 2**16, 431),
    "a body without end": (CHUNKED, b"10000\r\n" + b" " * 2**16 + b"\r\n", 413),
    "a body in the smallest chunks": (CHUNKED, b"1\r\n \r\n" * 2**13, 413),
    "an extension without end": (CHUNKED + b"1;a=", b"a" * 2**16, 413),
    "a trailer without end": (CHUNKED + b"0\r\nX-None: ", b"a" * 2**16, 413),
    "trailers without end": (CHUNKED + b"0\r\n", b"a: b\r\n" * 2**13, 413),
}


def test_what_has_no_end_is_refused_and_takes_no_memory(lone: Service) -> None:
    httpx.get(f"{lone.url}/openapi.json")
    before = resident_kib(lone)
    for name, (start, more, status) in FLOODS.items():
        with raw.connected(lone) as connection:
            sender = threading.Thread(target=flood, args=(connection, start, more))
            sender.start()
            assert connection.recv(12).startswith(b"HTTP/1.1 %d" % status), name
            sender.join()
        assert resident_kib(lone) - before < MOST_GROWTH_KIB, name


def flood(connection: socket.socket, start: bytes, more: bytes) -> None:
    with suppress(OSError):
        connection.sendall(start)
        for _ in range(FLOOD_BYTES // len(more)):
            connection.sendall(more)


def resident_kib(service: Service) -> int:
    """The most that the process ever had in memory."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
