"""Whatever a registration looks like, fast path and route answer it alike, and tell the same of it."""

import datetime
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from app.tables import device_blocks, devices, user_quotas
from tests import raw
from tests.auth.bad_tokens import EC, PUBLISHED
from tests.auth.issuer import AUDIENCE, ISSUER, published
from tests.auth.keys import put_key
from tests.lifecycle.rows import run
from tests.scraping import scrape
from tests.services import PATIENT, ROOT_KEY, Service, running_service

NewUser = Callable[[], int]
JSON = b"Content-Type: application/json"
LARGEST = 2**64 - 1
LAST = b"Connection: close"
OF_ONE = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\r\ndate: [^\r]*"
    rb"|\r\ncontent-length: \d+"
)


@dataclass(frozen=True)
class Caller:
    """Who calls, and for which user. The tokens are good for both services."""

    user: int
    user_token: str
    token_of_another: str
    key: str
    key_for_reading: str
    expired_key: str

    def post(self, *headers: bytes, body: bytes = b"{}", key: str | None = ROOT_KEY, path: str = "") -> bytes:
        target = path or f"/v1/users/{self.user}/devices"
        return raw.request("POST", target, *headers, LAST, body=body, key=key)

    def plain(self, body: bytes = b"{}", key: str | None = ROOT_KEY, user: str = "") -> bytes:
        return self.post(JSON, body=body, key=key, path=f"/v1/users/{user or self.user}/devices")

    def with_header(self, line: bytes) -> bytes:
        return self.post(JSON, line)

    def given(self, authorization: bytes) -> bytes:
        return self.post(JSON, b"Authorization: " + authorization, key=None)

    def by(self, method: str) -> bytes:
        return raw.request(method, f"/v1/users/{self.user}/devices", JSON, LAST, body=b"{}")

    def chunked(self, *chunks: bytes) -> bytes:
        head = self.post(JSON, b"Transfer-Encoding: chunked", body=b"")
        return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


Requests = Callable[[Caller], tuple[bytes, ...]]


def alone(request: Callable[[Caller], bytes]) -> Requests:
    return lambda caller: (request(caller),)


def bodies(**of: bytes) -> dict[str, Requests]:
    return {name: alone(partial(Caller.plain, body=body)) for name, body in of.items()}


def users(**of: str) -> dict[str, Requests]:
    return {name: alone(partial(Caller.plain, user=user)) for name, user in of.items()}


def headers(**of: bytes) -> dict[str, Requests]:
    return {name: alone(partial(Caller.with_header, line=line)) for name, line in of.items()}


NAMED = (
    b'{"device_id": "a", "name": "Ana\xc3\xa9", "platform": "ios", "metadata": {"k": 1}, "lease_seconds": 60}'
)
CASES: dict[str, Requests] = {
    **bodies(
        empty_object=b"{}",
        all_fields=NAMED,
        no_body=b"",
        spaces=b'  {"device_id" : "a"}\r\n ',
        byte_order_mark=b'\xef\xbb\xbf{"device_id": "a"}',
        not_json=b"{",
        not_utf_8=b'{"name": "\xff"}',
        latin_1=b'{"name": "Ana\xe9"}',
        nan=b'{"metadata": {"k": NaN}}',
        a_list=b"[]",
        a_string=b'"a"',
        null=b"null",
        key_twice=b'{"name": "a", "name": "b"}',
        unknown_field=b'{"nmae": "a"}',
        bad_id=b'{"device_id": "a b"}',
        dots=b'{"device_id": ".."}',
        long_id=b'{"device_id": "%s"}' % (b"a" * 129),
        number_for_id=b'{"device_id": 5}',
        bad_lease=b'{"lease_seconds": 59}',
        lease_as_text=b'{"lease_seconds": "60"}',
        lease_as_float=b'{"lease_seconds": 60.0}',
        no_lease=b'{"lease_seconds": null}',
        half_a_pair=b'{"name": "\\ud800"}',
        control_character=b'{"name": "a\\u0000"}',
        long_number=b'{"metadata": {"k": %s}}' % (b"1" * 5000),
        deep=b"[" * 4000,
        evicting=b'{"on_limit": "evict_oldest"}',
        rejecting=b'{"on_limit": "reject"}',
        replacing=b'{"replace_device_id": "none"}',
        between_8_and_64_kib=b'{"name": "a"%s}' % (b" " * 20_000),
        above_64_kib=b'{"name": "a"%s}' % (b" " * 70_000),
        known=b'{"device_id": "known", "name": "new"}',
        blocked=b'{"device_id": "blocked"}',
    ),
    **users(
        me_by_a_key="me",
        zero="0",
        leading_zero="042",
        largest=str(LARGEST),
        too_large=str(LARGEST + 1),
        twenty_digits="9" * 20,
        twenty_one_digits="1" * 21,
        negative="-1",
        plus="+1",
        letters="abc",
        percent_encoded_me="%6d%65",
        encoded_slash="42%2F43",
        arabic_digits="%D9%A4%D9%A2",
        empty="",
        space="42%20",
        line_end="42%0A",
    ),
    **headers(
        charset_twice=b"content-type: application/json",
        accept=b"Accept: text/html",
        query_in_no_path=b"X-Other: 1",
        idempotency_key=b"Idempotency-Key: a-key",
        bad_idempotency_key=b"Idempotency-Key: ",
        two_idempotency_keys=b"Idempotency-Key: a\r\nIdempotency-Key: b",
        if_match=b'If-Match: "1"',
        two_of_another=b"X-Other: 1\r\nX-Other: 2",
        two_authorizations=b"Authorization: Bearer another",
        request_id_that_is_none=b"X-Other: \xe9",
        forwarded=b"X-Forwarded-Proto: https",
        origin=b"Origin: https://page.test",
        expect=b"Expect: 100-continue",
        expect_another=b"Expect: a-wonder",
        upgrade=b"Upgrade: websocket",
    ),
    "no content type": alone(lambda caller: caller.post()),
    "charset": alone(lambda caller: caller.post(b"Content-Type: application/json; charset=utf-8")),
    "another charset": alone(lambda caller: caller.post(b"Content-Type: application/json; charset=latin-1")),
    "capitals": alone(lambda caller: caller.post(b"Content-Type: Application/JSON")),
    "json of a kind": alone(lambda caller: caller.post(b"Content-Type: application/merge-patch+json")),
    "a form": alone(lambda caller: caller.post(b"Content-Type: application/x-www-form-urlencoded")),
    "full": alone(lambda caller: caller.plain(b'{"device_id": "one more"}'.replace(b" m", b"-m"))),
    "no key": alone(lambda caller: caller.plain(key=None)),
    "a wrong key": alone(lambda caller: caller.plain(key="wrong")),
    "an api key": alone(lambda caller: caller.plain(key=caller.key)),
    "a key without the scope": alone(lambda caller: caller.plain(key=caller.key_for_reading)),
    "a key without the scope and no JSON": alone(lambda caller: caller.plain(b"{", caller.key_for_reading)),
    "an expired key": alone(lambda caller: caller.plain(key=caller.expired_key)),
    "a key that is none": alone(lambda caller: caller.plain(key="cupo_x")),
    "an empty key": alone(lambda caller: caller.given(b"Bearer ")),
    "a key after two spaces": alone(lambda caller: caller.given(b"Bearer  " + ROOT_KEY.encode())),
    "a key before a space": alone(lambda caller: caller.given(b"Bearer " + ROOT_KEY.encode() + b" ")),
    "a key in small letters": alone(lambda caller: caller.given(b"bearer " + ROOT_KEY.encode())),
    "a key after a tab": alone(lambda caller: caller.given(b"Bearer\t" + ROOT_KEY.encode())),
    "basic": alone(lambda caller: caller.given(b"Basic Og==")),
    "a key of other letters": alone(lambda caller: caller.given(b"Bearer \xe9")),
    "a user": alone(lambda caller: caller.plain(key=caller.user_token)),
    "a user as me": alone(lambda caller: caller.plain(key=caller.user_token, user="me")),
    "another user": alone(lambda caller: caller.plain(key=caller.token_of_another)),
    "another user without JSON": alone(lambda caller: caller.plain(b"{", key=caller.token_of_another)),
    "a user who would evict": alone(
        lambda caller: caller.plain(b'{"on_limit": "evict_oldest"}', key=caller.user_token)
    ),
    "percent-encoded": alone(
        lambda caller: caller.plain(user="".join(f"%3{digit}" for digit in str(caller.user)))
    ),
    "a user in other digits": alone(
        lambda caller: caller.plain(key=caller.user_token, user=f"0{caller.user}")
    ),
    "a token that is none": alone(lambda caller: caller.plain(key="a.b.c")),
    "a query": alone(lambda caller: caller.post(JSON, path=f"/v1/users/{caller.user}/devices?block=true")),
    "an empty query": alone(lambda caller: caller.post(JSON, path=f"/v1/users/{caller.user}/devices?")),
    "a slash more": alone(lambda caller: caller.post(JSON, path=f"/v1/users/{caller.user}/devices/")),
    "two slashes": alone(lambda caller: caller.post(JSON, path=f"//v1/users/{caller.user}/devices")),
    "a whole address": alone(
        lambda caller: caller.post(JSON, path=f"http://cupo.test/v1/users/{caller.user}/devices")
    ),
    **{
        method: alone(partial(Caller.by, method=method))
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post", "PROPFIND")
    },
    "chunked": alone(lambda caller: caller.chunked(b'{"device_id":', b' "a"}')),
    "chunked without body": alone(lambda caller: caller.chunked()),
    "in two pieces": lambda caller: (caller.plain(NAMED)[:-10], caller.plain(NAMED)[-10:]),
    "a long body in two pieces": lambda caller: (
        caller.plain(b"{%s}" % (b" " * 60_000))[:-10],
        caller.plain(b"{%s}" % (b" " * 60_000))[-10:],
    ),
    "pipelined": alone(
        lambda caller: caller.plain(b'{"device_id": "a"}').replace(LAST + b"\r\n", b"") * 2 + caller.plain()
    ),
    "HTTP/1.0": alone(lambda caller: caller.plain().replace(b"HTTP/1.1", b"HTTP/1.0")),
}


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
