"""A small stand-in for the service, with faults to choose from, over a SQLite file that the auditor reads.

Its settings come as CUPO_… variables, as the service's do: DATABASE_URL, ROOT_KEY, DEFAULT_DEVICE_LIMIT, and
FAULT, one of:

- `stall`: at its 100th registration it does nothing at all for two seconds
- `no_limit`: every registration succeeds
- `silent`: a registration is made, but the connection is closed without an answer
- `never`: a registration is never answered
- `unavailable`: every registration gets 503
"""

import json
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Answer = tuple[int, dict[str, Any] | None]

STALL_AT, STALL_SECONDS = 100, 2.0
TABLES = """
    CREATE TABLE IF NOT EXISTS devices
        (user_id BIGINT, device_id VARCHAR(128), registered_at TEXT, PRIMARY KEY (user_id, device_id));
    CREATE TABLE IF NOT EXISTS device_registration_locks (user_id BIGINT PRIMARY KEY);"""


class CutOff(Exception):
    """The connection ends without an answer."""


class NoAnswerEver(Exception):
    """The connection stays open without an answer, until the caller has had enough."""


class StandIn:
    def __init__(self) -> None:
        path = os.environ["CUPO_DATABASE_URL"].removeprefix("sqlite:///")
        self._tables = sqlite3.connect(path, isolation_level=None)
        self._tables.executescript(TABLES)
        self._tables.execute("PRAGMA journal_mode=WAL")
        self._tables.execute("PRAGMA synchronous=OFF")
        self._limit = int(os.environ.get("CUPO_DEFAULT_DEVICE_LIMIT", "2"))
        self._fault = os.environ.get("CUPO_FAULT", "")
        self._key = f"Bearer {os.environ['CUPO_ROOT_KEY']}".encode()
        self._registrations = 0

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        match [method, *path.strip("/").split("/")]:
            case ["GET", "livez"]:
                return 200, {}
            case ["GET", "v1", "users", user, "quota"]:
                return 200, self._quota(int(user))
            case ["GET", "v1", "users", user, "devices"]:
                items = [{"device_id": device} for device in self._devices(int(user))]
                return 200, {"items": items, "next_cursor": None, "quota": self._quota(int(user))}
            case ["POST", "v1", "users", user, "devices"]:
                return self._register(int(user), json.loads(body)["device_id"])
            case ["DELETE", "v1", "users", user, "devices", device]:
                return self._revoke(int(user), device)
        return 404, {"code": "not_found"}

    def _register(self, user: int, device: str) -> Answer:
        if device != "lt-probe":
            self._misbehave()
            if self._fault == "unavailable":
                return 503, {"code": "database_unavailable"}
        quota = self._quota(user)
        if device in self._devices(user):
            return 200, {"device": {"device_id": device}, "quota": quota}
        if quota["used"] >= self._limit and self._fault != "no_limit":
            return 409, {"code": "device_limit_reached"}
        self._tables.execute("INSERT INTO devices VALUES (?, ?, '')", (user, device))
        if self._fault == "silent" and device != "lt-probe":
            raise CutOff
        return 201, {"device": {"device_id": device}, "quota": self._quota(user)}

    def _misbehave(self) -> None:
        self._registrations += 1
        if self._fault == "stall" and self._registrations == STALL_AT:
            time.sleep(STALL_SECONDS)  # blocks the loop: that nothing else goes on is the point
        if self._fault == "never":
            raise NoAnswerEver

    def _revoke(self, user: int, device: str) -> Answer:
        done = self._tables.execute("DELETE FROM devices WHERE user_id = ? AND device_id = ?", (user, device))
        return (204, None) if done.rowcount else (404, {"code": "device_not_found"})

    def _devices(self, user: int) -> list[str]:
        query = "SELECT device_id FROM devices WHERE user_id = ? ORDER BY device_id"
        return [device for (device,) in self._tables.execute(query, (user,))]

    def _quota(self, user: int) -> dict[str, Any]:
        used = len(self._devices(user))
        remaining = max(0, self._limit - used)
        return {"limit": self._limit, "used": used, "remaining": remaining, "source": "default"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, answer = 401, {"code": "unauthenticated"}
        if dict(scope["headers"]).get(b"authorization") == self._key or scope["path"] == "/livez":
            try:
                status, found = self.answer(scope["method"], scope["path"], body)
            except CutOff:
                headers = [(b"content-length", b"100")]
                await send({"type": "http.response.start", "status": 201, "headers": headers})
                return  # with its hundred bytes still owed
            except NoAnswerEver:
                await receive()  # returns when the caller has hung up
                return
            answer = found or {}
        content = b"" if status == 204 else json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


app = StandIn()
