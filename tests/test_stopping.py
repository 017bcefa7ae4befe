"""An orderly end and those who are slow: refused in time, and no fault of the service."""

import asyncio
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine
from starlette.types import Message, Receive, Scope, Send

from app.server import STOPPING_SECONDS
from app.stopping import AnswerWhenCancelled
from tests import raw
from tests.problems import assert_problem
from tests.services import Service, running_service
from tests.test_ending import PATIENCE_SECONDS, call_in_flight, refuses_connections, wait_until

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]
JSON = b"Content-Type: application/json"


def body_to_come(user: int) -> bytes:
    return raw.request("POST", f"/v1/users/{user}/devices", JSON, b"Content-Length: 22")


def assert_ended_without_fault(service: Service, within_seconds: float, began: float) -> None:
    assert service.process.wait(PATIENCE_SECONDS) == 0
    assert time.monotonic() - began < within_seconds
    logged = service.log.read_text()
    assert "Traceback" not in logged
    assert "internal_error" not in logged
    assert "Cancel" not in logged


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_body_that_does_not_come_is_refused_and_holds_no_end_up(
    database_url: str, folder: Path, new_user: NewUser, number: signal.Signals
) -> None:
    with running_service(database_url, folder) as service, raw.connected(service) as connection:
        connection.sendall(body_to_come(new_user()) + b"{")
        assert not select.select([connection], [], [], 0.5)[0]
        began = time.monotonic()
        service.process.send_signal(number)
        (answer,) = raw.answers_of(connection)
        problem = assert_problem(answer, 503, "overloaded")
        assert problem["detail"] == "The service is stopping. Nothing was changed."
        assert answer.headers["connection"] == "close"
        assert "retry-after" in answer.headers
        assert_ended_without_fault(service, STOPPING_SECONDS + 4, began)


def test_a_body_that_comes_a_moment_after_is_taken(
    database_url: str, folder: Path, new_user: NewUser
) -> None:
    with running_service(database_url, folder) as service, raw.connected(service) as connection:
        connection.sendall(body_to_come(new_user()) + b'{"device_id":')
        assert not select.select([connection], [], [], 0.5)[0]
        began = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses_connections(service))
        connection.sendall(b'  "late"}')
        (answer,) = raw.answers_of(connection)
        assert (answer.status, answer.headers["connection"]) == (201, "close")
        assert_ended_without_fault(service, STOPPING_SECONDS + 4, began)


def test_calls_behind_one_that_waits_are_refused_and_the_one_is_finished(
    database_url: str, folder: Path, auditor: Engine, new_user: NewUser
) -> None:
    """Sent on one connection, each might wait as long as the first."""
    user = new_user()
    call = raw.request("POST", f"/v1/users/{user}/devices", JSON, body=b'{"device_id": "first"}')
    with (
        running_service(database_url, folder) as service,
        raw.connected(service) as connection,
        call_in_flight(service, auditor, user) as finish,
    ):
        connection.sendall(call * 3)
        assert not select.select([connection], [], [], 0.5)[0]
        began = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert not select.select([connection], [], [], STOPPING_SECONDS + 0.5)[0]
        assert finish().status_code == 201
        answers = raw.answers_of(connection)
        assert [answer.status for answer in answers] == [200, 503, 503]
        assert_ended_without_fault(service, STOPPING_SECONDS + 5, began)


def test_a_call_that_is_cancelled_all_the_same_is_answered_503() -> None:
    """As the server does to calls that its end no longer waits for."""
    sent: list[Message] = []

    async def hang(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.Event().wait()

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    async def cancelled() -> None:
        state = {"request_id": "1"}
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "state": state}
        call = asyncio.create_task(AnswerWhenCancelled(hang)(scope, receive, send))
        await asyncio.sleep(0)
        call.cancel()
        await call

    asyncio.run(cancelled())
    assert sent[0]["status"] == 503
    assert b"database_unavailable" in sent[1]["body"]
