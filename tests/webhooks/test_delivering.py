"""One attempt: what is sent, what counts as delivered, and how long and how large it can become."""

import datetime
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from app import __version__
from app.webhooks import connections as connections_module
from app.webhooks import deliver as deliver_module
from app.webhooks.connections import Connections
from app.webhooks.deliver import Attempt, deliver
from app.webhooks.deliveries import Delivery, Endpoint, Occurrence
from app.webhooks.signing import new_key, spelled
from tests.webhooks.receivers import Receiver, answer, answering, receiving, trickling

AT = datetime.datetime(2026, 11, 30, 9, 31, 0, 123456)  # noqa: DTZ001 - as the database gives it
KEY = new_key()
PATIENCE_SECONDS = 30
EVENT = Occurrence(
    1042, 2**64 - 1, "3f6c1a50-phone", "root_key", "lost ☎", "a-request", {"a": [1, 1.0, None]}
)


def delivery_to(url: str, **fields: Any) -> Delivery:
    usual: dict[str, Any] = {
        "id": 5,
        "token": "t",
        "type": "device.revoked",
        "at": AT,
        "attempts": 1,
        "event": EVENT,
    }
    return Delivery(endpoint=Endpoint(7, url, fields.pop("keys", (KEY,))), **(usual | fields))


@pytest.fixture
def local() -> Iterator[Connections]:
    """Connections that may go to the loopback, without TLS."""
    made = Connections(allow_http=True, allow_private=True)
    yield made
    made.close()


@pytest.fixture
def half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver_module, "ATTEMPT_SECONDS", 0.5)


def test_a_receiver_gets_a_signed_post_that_says_what_happened_and_when(local: Connections) -> None:
    with receiving() as receiver:
        attempt = deliver(local, delivery_to(receiver.url + "?a=b"))
    assert (attempt.outcome, attempt.status, attempt.error) == ("delivered", 200, None)
    (received,) = receiver.received
    assert received.line == "POST /hook?a=b HTTP/1.1"
    assert received.headers.keys() == {
        *("host", "accept-encoding", "content-length", "content-type", "user-agent"),
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
    }
    assert received.headers["content-type"] == "application/json"
    assert received.headers["user-agent"] == f"Cupo/{__version__}"
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert received.headers["webhook-id"] == "evt_1042_7"
    assert abs(int(received.headers["webhook-timestamp"]) - time.time()) < 60
    assert Webhook(spelled(KEY)).verify(received.body, received.headers) == {
        "type": "device.revoked",
        "timestamp": "2026-11-30T09:31:00.123456Z",
        "data": {
            "event_id": "1042",
            "user_id": "18446744073709551615",
            "device_id": "3f6c1a50-phone",
            "actor": "root_key",
            "reason": "lost ☎",
            "request_id": "a-request",
            "data": {"a": [1, 1.0, None]},
        },
    }


def test_each_attempt_has_the_same_id_and_the_same_bytes_and_a_timestamp_of_its_own(
    local: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        for attempts, now in enumerate((1_790_000_000.9, 1_790_000_005.1), start=1):
            monkeypatch.setattr("time.time", lambda now=now: now)
            deliver(local, delivery_to(receiver.url, attempts=attempts, token=f"claim {attempts}"))
    first, second = receiver.received
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert [one.headers["webhook-timestamp"] for one in (first, second)] == ["1790000000", "1790000005"]


def test_during_a_rotation_a_receiver_verifies_with_either_secret(local: Connections) -> None:
    new = new_key()
    with receiving() as receiver:
        deliver(local, delivery_to(receiver.url, keys=(new, KEY)))
    (received,) = receiver.received
    for key in (new, KEY):
        assert Webhook(spelled(key)).verify(received.body, received.headers)


def test_a_test_event_says_to_which_endpoint_it_was_sent(local: Connections) -> None:
    with receiving() as receiver:
        deliver(local, delivery_to(receiver.url, type="webhook.test", event=None))
    (received,) = receiver.received
    assert received.headers["webhook-id"] == "test_5_7"
    assert json.loads(received.body) == {
        "type": "webhook.test",
        "timestamp": "2026-11-30T09:31:00.123456Z",
        "data": {"endpoint_id": "7"},
    }


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, "delivered") for status in (200, 201, 202, 204, 206, 299)),
        *((status, "failed") for status in (101, 199, 300, 301, 302, 303, 304, 307, 308)),
        *((status, "failed") for status in (400, 401, 404, 408, 409, 429, 499, 500, 502, 503, 599, 999)),
        (410, "gone"),
    ],
)
def test_only_2xx_counts_as_delivered_and_410_as_gone(local: Connections, status: int, outcome: str) -> None:
    with receiving(answering(answer(status))) as receiver:
        attempt = deliver(local, delivery_to(receiver.url))
    assert (attempt.outcome, attempt.status) == (outcome, status)
    assert (attempt.error is None) == (outcome == "delivered")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(local: Connections, status: int) -> None:
    with (
        receiving() as elsewhere,
        receiving(answering(answer(status, b"", f"Location: {elsewhere.url}"))) as receiver,
    ):
        attempt = deliver(local, delivery_to(receiver.url))
    assert (attempt.outcome, attempt.error) == ("failed", f"answered {status}; redirects are not followed")
    assert len(receiver.received) == 1
    assert elsewhere.connections == 0


@pytest.mark.parametrize(
    ("status", "value", "seconds"),
    [
        (429, "120", 120),
        (503, "0", 0),
        (503, "Mon, 30 Nov 2015 09:31:00 GMT", 0),
        (500, "120", None),
        (429, "soon", None),
        (429, "-1", None),
        (429, "1.5", None),
        (429, "9" * 400, None),
        (429, "Mon, 99 Nov 2026 09:31:00 GMT", None),
    ],
)
def test_retry_after_is_read_of_429_and_503(
    local: Connections, status: int, value: str, seconds: float | None
) -> None:
    attempt = attempt_answered_by(local, status, value)
    assert attempt.outcome == "failed"
    assert attempt.retry_after_seconds == (None if seconds is None else pytest.approx(seconds, abs=60))


def test_retry_after_may_be_an_instant(local: Connections) -> None:
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    attempt = attempt_answered_by(local, 503, format_datetime(at, usegmt=True))
    assert attempt.retry_after_seconds == pytest.approx(3600, abs=60)


def attempt_answered_by(local: Connections, status: int, retry_after: str) -> Attempt:
    with receiving(answering(answer(status, b"", f"Retry-After: {retry_after}"))) as receiver:
        return deliver(local, delivery_to(receiver.url))


def read_request(sock: socket.socket) -> None:
    with sock.makefile("rb") as stream:
        length = 0
        while line := stream.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.split()[1])
        stream.read(length)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.usefixtures("half_a_second")
@pytest.mark.parametrize(
    "behaviour",
    [
        lambda receiver, _: receiver.pause(60),
        trickling(b"", HEAD[:1]),
        trickling(HEAD, b"X: y\r\n"),
        trickling(HEAD, b"y"),
        trickling(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["silence", "status", "headers", "one header", "100 Continue"],
)
def test_a_receiver_that_does_not_come_to_an_end_costs_no_more_than_the_time_of_an_attempt(
    local: Connections, behaviour: Callable[..., None]
) -> None:
    with receiving(behaviour) as receiver:
        attempt = deliver(local, delivery_to(receiver.url))
    assert (attempt.outcome, attempt.error) == ("failed", "no answer within 0.5 s")
    assert 0.5 <= attempt.duration_seconds < 5


@pytest.mark.usefixtures("half_a_second")
@pytest.mark.parametrize(
    "start",
    [b"Content-Length: 1000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n1000\r\n", b"\r\n"],
    ids=["length", "chunked", "to the end"],
)
def test_a_200_whose_body_trickles_was_delivered_and_ends_with_the_attempt(
    local: Connections, start: bytes
) -> None:
    with receiving(trickling(HEAD + start, b"x")) as receiver:
        attempt = deliver(local, delivery_to(receiver.url))
    assert (attempt.outcome, attempt.status) == ("delivered", 200)
    assert set(attempt.excerpt) == {"x"}
    assert 0.5 <= attempt.duration_seconds < 5


@pytest.mark.usefixtures("half_a_second")
def test_a_look_up_that_never_ends_costs_no_more_than_the_time_of_an_attempt() -> None:
    with receiving() as receiver:

        def hang(_host: str, _port: int) -> Any:
            receiver.stop.wait(60)
            return []

        connections = Connections(look_up=hang)
        attempt = deliver(connections, delivery_to("https://example.com/"))
    assert (attempt.outcome, attempt.error) == ("failed", "no answer within 0.5 s")
    assert attempt.duration_seconds < 5


def test_of_a_body_4_kib_are_read_and_of_an_answer_32(local: Connections) -> None:
    flood = HEAD + b"\r\n" + b"x" * 10_000_000
    with receiving(answering(flood)) as receiver:
        attempt = deliver(local, delivery_to(receiver.url))
    assert (attempt.outcome, attempt.excerpt) == ("delivered", "x" * 4096)

    for endless in (
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        HEAD + b"X: " + b"y" * 60_000 + b"\r\n\r\n",
        HEAD + (b"X: " + b"y" * 1000 + b"\r\n") * 90 + b"\r\n",
    ):
        with receiving(answering(endless)) as receiver:
            attempt = deliver(local, delivery_to(receiver.url))
        assert (attempt.outcome, attempt.error) == ("failed", "answered with too many bytes")


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", "ended the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9\r\n", "answered with what is not HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "answered with what is not HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "answered with what is not HTTP"),
    ],
)
def test_what_is_no_answer_is_a_failure_in_words(local: Connections, sent: bytes, error: str) -> None:
    def behave(_: Receiver, sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(sent)

    with receiving(behave) as receiver:
        attempt = deliver(local, delivery_to(receiver.url))
    assert (attempt.outcome, attempt.status, attempt.error) == ("failed", None, error)


def test_a_receiver_that_is_not_there_is_a_failure_in_words(local: Connections) -> None:
    with receiving() as receiver:
        url = receiver.url
    attempt = deliver(local, delivery_to(url))
    assert (attempt.outcome, attempt.error) == ("failed", "cannot be connected to: Connection refused")
    unknown = deliver(local, delivery_to("http://name.invalid/"))
    assert (unknown.outcome, unknown.error) == ("failed", "its name was not found")


def test_an_answer_in_any_bytes_has_an_excerpt(local: Connections) -> None:
    with receiving(answering(answer(500, b"\xff\x00 \xe2\x98\x8e"))) as receiver:
        attempt = deliver(local, delivery_to(receiver.url))
    assert attempt.excerpt == "\N{REPLACEMENT CHARACTER}\x00 ☎"


def test_nothing_of_the_environment_has_a_say(
    local: Connections, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """No proxy, and no password from ~/.netrc."""
    (folder / "netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with receiving(answering(answer(200, b"", "Set-Cookie: a=b"))) as receiver:
        for _ in range(2):
            assert deliver(local, delivery_to(receiver.url)).outcome == "delivered"
    for received in receiver.received:
        assert {"authorization", "cookie", "proxy-authorization"}.isdisjoint(received.headers)


# Connections that are kept.


def deliver_twice(local: Connections, receiver: Receiver) -> list[str]:
    return [deliver(local, delivery_to(receiver.url)).outcome for _ in range(2)]


@pytest.mark.parametrize(
    "whole",
    [
        answer(200),
        answer(204),
        answer(500, b"x" * 4096),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
    ids=["empty", "204", "4 KiB", "chunked"],
)
def test_a_connection_whose_answer_was_read_whole_is_used_again(local: Connections, whole: bytes) -> None:
    with receiving(answering(whole)) as receiver:
        deliver_twice(local, receiver)
        local.close()
    assert (receiver.connections, len(receiver.received)) == (1, 2)


def test_over_one_connection_each_message_goes_to_the_path_of_its_own_endpoint(local: Connections) -> None:
    paths = ["/a", "/b?c=d", "/a"]
    with receiving() as receiver:
        for path in paths:
            assert deliver(local, delivery_to(receiver.url.replace("/hook", path))).outcome == "delivered"
        local.close()
    assert receiver.connections == 1
    assert [received.line for received in receiver.received] == [f"POST {path} HTTP/1.1" for path in paths]


@pytest.mark.parametrize(
    "unfit",
    [
        answer(200, b"", "Connection: close"),
        answer(200, b"x" * 4098),
        b"HTTP/1.0 200 OK\r\n\r\n",
        answer(103) + answer(410),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
    ],
    ids=["close", "too long", "1.0", "103", "too short"],
)
@pytest.mark.usefixtures("half_a_second")
def test_a_connection_on_which_anything_may_be_left_is_not(local: Connections, unfit: bytes) -> None:
    def behave(receiver: Receiver, sock: socket.socket) -> None:
        if b"HTTP/1.0" in unfit:
            read_request(sock)
            sock.sendall(unfit)
        else:
            answering(unfit)(receiver, sock)

    with receiving(behave) as receiver:
        outcomes = deliver_twice(local, receiver)
    assert "gone" not in outcomes
    assert receiver.connections == 2


@pytest.mark.parametrize("bound", ["MOST_IDLE_SECONDS", "MOST_LIFE_SECONDS"])
def test_a_connection_is_not_kept_for_long(
    local: Connections, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(connections_module, bound, 0)
    with receiving() as receiver:
        assert deliver_twice(local, receiver) == ["delivered", "delivered"]
    assert receiver.connections == 2


def test_a_kept_connection_that_ends_under_the_request_costs_no_attempt(local: Connections) -> None:
    """Which is what a server does that closes what is idle, at the worst moment."""

    def behave(_: Receiver, sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(answer(200))
        read_request(sock)

    with receiving(behave) as receiver:
        assert deliver_twice(local, receiver) == ["delivered", "delivered"]
        local.close()
    assert receiver.connections == 2


def test_an_answer_that_came_while_a_connection_was_idle_is_none_to_the_next_message(
    local: Connections,
) -> None:
    """Some servers say 408 before they end a connection on which nothing comes."""
    first_is_over, said = threading.Event(), threading.Event()

    def behave(receiver: Receiver, sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(answer(200))
        if receiver.connections == 1:
            first_is_over.wait(PATIENCE_SECONDS)
            sock.sendall(answer(408))
            said.set()
            read_request(sock)  # not closed meanwhile, which alone would keep it from being used

    with receiving(behave) as receiver:
        assert deliver(local, delivery_to(receiver.url)).status == 200
        first_is_over.set()
        assert said.wait(PATIENCE_SECONDS)
        assert deliver(local, delivery_to(receiver.url)).status == 200
        local.close()
    assert receiver.connections == 2


def test_a_kept_connection_that_breaks_in_the_middle_of_an_answer_is_not_tried_again(
    local: Connections,
) -> None:
    """The receiver has the message, and gets it again only by the schedule."""

    def behave(_: Receiver, sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(answer(200))
        read_request(sock)
        sock.sendall(b"HTTP/1.1 2")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends by a reset

    with receiving(behave) as receiver:
        assert deliver_twice(local, receiver) == ["delivered", "failed"]
    assert receiver.connections == 1


def test_a_new_connection_that_ends_is_not_tried_again(local: Connections) -> None:
    with receiving(lambda _, sock: read_request(sock)) as receiver:
        assert deliver(local, delivery_to(receiver.url)).outcome == "failed"
    assert receiver.connections == 1
