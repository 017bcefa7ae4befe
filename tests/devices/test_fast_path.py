"""Whatever a registration looks like, fast path and route answer it alike, and tell the same of it."""

import datetime
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from app.tables import device_blocks, devices, user_quotas
from tests import raw
from tests.auth.bad_tokens import EC, PUBLISHED
from tests.auth.issuer import AUDIENCE, ISSUER, published
from tests.auth.keys import put_key
from tests.devices.odd_requests import (
    CASES,
    JSON,
    LARGEST,
    NAMED,
    Caller,
)
from tests.lifecycle.rows import run
from tests.scraping import scrape
from tests.services import PATIENT, Service, running_service

NewUser = Callable[[], int]
OF_ONE = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\r\ndate: [^\r]*"
    rb"|\r\ncontent-length: \d+"
)


@dataclass(frozen=True)
class Seen:
    """All that can be told of a request, without what must differ."""

    received: bytes
    lines: list[dict[str, Any]]


class Both:
    def __init__(self, services: dict[str, Service], auditor: Engine, new_user: NewUser) -> None:
        self.services = services
        self.before = {name: scrape(service.url) for name, service in services.items()}
        self._auditor, self._new_user = auditor, new_user
        of_key = {
            "key": put_key(auditor, "devices:write").token,
            "key_for_reading": put_key(auditor, "devices:read").token,
            "expired_key": put_key(auditor, "devices:write", expires_in_seconds=-5).token,
        }
        self._users: dict[tuple[str, str], int] = {}
        self._received: dict[tuple[str, str], bytes] = {}
        self._make_users()
        for case, requests in CASES.items():
            for name, service in services.items():
                if case == "largest":
                    run(auditor, "DELETE FROM devices WHERE user_id = :user", user=LARGEST)
                user = self._users[name, case]
                tokens = {"user_token": EC.token(sub=str(user)), "token_of_another": EC.token(sub="41")}
                parts = requests(Caller(user, **tokens, **of_key))
                named = parts[0].replace(b"Host:", f"X-Request-ID: {name_of(case)}\r\nHost:".encode())
                self._received[name, case] = received(service, named, *parts[1:])
        self._logs = {name: lines_of(service) for name, service in services.items()}

    def _make_users(self) -> None:
        """For each service and case one, all in the same state: a device is known, and one is blocked."""
        now = datetime.datetime(2026, 1, 1)  # noqa: DTZ001 - as the database keeps it, in UTC
        rows: list[dict[str, Any]] = []
        for case in CASES:
            for name in self.services:
                self._users[name, case] = user = self._new_user()
                rows.append(
                    {"user_id": user, "device_limit": 1 if case == "full" else 4, "device_id": "known"}
                )
        seen = {"registered_at": now, "last_seen_at": now, "revision": 1}
        with self._auditor.connect() as connection:
            for table, more in (
                (devices, seen),
                (user_quotas, {"revision": 1}),
                (device_blocks, {"blocked_at": now, "device_id": "blocked"}),
            ):
                given = [
                    {key: value for key, value in (row | more).items() if key in table.c} for row in rows
                ]
                connection.execute(insert(table), given)

    def seen(self, name: str, case: str) -> Seen:
        user = str(self._users[name, case]).encode()

        def plain(text: bytes) -> bytes:
            """Without the user, the times, and the ids that the service made."""
            return OF_ONE.sub(b"?", text.replace(user, b"a user"))

        lines = [line for line in self._logs[name] if line["request_id"] == name_of(case)]
        told = [json.loads(plain(json.dumps(line).encode())) for line in lines]
        return Seen(
            plain(self._received[name, case]),
            [{key: line[key] for key in line.keys() - DIFFERENT} for line in told],
        )


DIFFERENT = {"timestamp", "seconds", "lock_wait_seconds"}


def received(service: Service, *parts: bytes) -> bytes:
    """What comes back until the service closes the connection; each of `parts` is sent by itself."""
    with raw.connected(service) as connection:
        for part in parts:
            connection.sendall(part)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def name_of(case: str) -> str:
    return "of-" + case.replace(" ", "-").replace("/", "-")


def lines_of(service: Service) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.logged().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "Answered"]


@pytest.fixture(scope="module")
def both(
    database_url: str, auditor: Engine, new_user: NewUser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    ways = {"fast": ("app", "serve"), "routed": ("tests.devices.routed", "serve")}
    with ExitStack() as stack:
        publisher = stack.enter_context(published(PUBLISHED))
        settings: dict[str, Any] = {
            "jwks_url": publisher.url,
            "jwt_issuer": ISSUER,
            "jwt_audience": AUDIENCE,
            **PATIENT,
        }
        folder = tmp_path_factory.mktemp("both")
        services = {
            name: stack.enter_context(running_service(database_url, folder, command=way, **settings))
            for name, way in ways.items()
        }
        yield Both(services, auditor, new_user)


@pytest.mark.parametrize("case", CASES)
def test_both_answer_alike_and_tell_the_same(both: Both, case: str) -> None:
    fast, routed = both.seen("fast", case), both.seen("routed", case)
    assert fast.received == routed.received
    assert fast.lines == routed.lines
    assert fast.received.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 500" not in fast.received


def test_both_count_the_same(both: Both) -> None:
    """Over all of the requests above."""
    counted = {}
    for name, service in both.services.items():
        found = scrape(service.url).since(both.before[name])
        labels = ("route", "method", "status", "code")
        counted[name] = [
            found.by("cupo_http_request_duration_seconds_count", *labels),
            found.by("cupo_registrations_total", "outcome"),
        ]
    assert counted["fast"] == counted["routed"]
    assert counted["fast"][1].keys() >= {("created",), ("known",), ("refused",), ("blocked",)}


def test_both_tell_the_same_of_a_client_that_goes_in_mid_body(both: Both, new_user: NewUser) -> None:
    told = []
    for service in both.services.values():
        name = b"X-Request-ID: gone"
        target = f"/v1/users/{new_user()}/devices"
        with raw.connected(service) as connection:
            connection.sendall(raw.request("POST", target, JSON, name, body=NAMED)[:-10])
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
        lines = [line for line in lines_of(service) if line["request_id"] == "gone"]
        told.append([{key: line[key] for key in line.keys() - DIFFERENT} for line in lines])
    assert told[0] == told[1]
    assert len(told[0]) == 1
