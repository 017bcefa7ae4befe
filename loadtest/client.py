"""One call to the service and what came back, as lean as httpx allows: see connection.py for why."""

import asyncio
import dataclasses
import json
import ssl
import time
from typing import NamedTuple

import httpx

from loadtest.connection import OneConnection
from loadtest.plan import Action, Call

# Answers that are none (status 0). After the first three the call may have had its effect, now or later.
TIMEOUT, LOST, ABANDONED, NOT_CONNECTED = "timeout", "connection_lost", "abandoned", "not_connected"


class Sample(NamedTuple):
    """One call as it went. Instants in seconds of this machine's monotonic clock, which all processes share;
    in a finished run, from its start. `due` is when the plan wanted it sent: latency counts from there."""

    due: float
    sent: float
    finished: float
    action: Action
    user: int
    device: str
    status: int
    code: str

    @property
    def latency(self) -> float:
        """Seconds from the instant the call was due, so that a call kept waiting by those before it shows it.
        A timer may fire a little early; then it counts from when the call was sent."""
        return self.finished - min(self.due, self.sent)

    @property
    def uncertain(self) -> bool:
        """Whether the call may have had its effect although nobody was told so."""
        return self.status >= 500 or (self.status == 0 and self.code != NOT_CONNECTED)


@dataclasses.dataclass(frozen=True)
class Access:
    """How to reach the service. `targets` are base URLs of replicas, taken in turn."""

    targets: tuple[str, ...]
    key: str
    timeout_seconds: float


class Lane:
    """One connection to one target; makes one call at a time."""

    def __init__(self, access: Access, target: str, tls: ssl.SSLContext | None) -> None:
        self._base = httpx.URL(target)
        self._prefix = self._base.path.rstrip("/")
        self._timeout = access.timeout_seconds
        self._transport = OneConnection(self._base, tls)
        self._abandoned = False
        self._headers = httpx.Headers(
            {
                "Host": self._base.netloc.decode(),
                "Authorization": f"Bearer {access.key}",
                "Accept": "application/json",
                "User-Agent": "cupo-loadtest",
            }
        )

    async def connect(self, user: int) -> None:
        """Opens the connection by asking for this user's quota, so that the service has its own connections
        open as well: a race that waits for them is none. Any answer will do.

        Raises httpx.TransportError, TimeoutError.
        """
        async with asyncio.timeout(self._timeout):
            await self._transport.handle_async_request(self._request("GET", f"/v1/users/{user}/quota"))

    async def call(self, call: Call, due: float | None) -> Sample:
        """Makes the call; whatever happens is a sample. `due` None: due when sent."""
        request = self._request_for(call)
        sent = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._transport.handle_async_request(request)
            status, code = response.status_code, _code(response)
        except TimeoutError:
            status, code = 0, TIMEOUT
        except httpx.ConnectError:
            status, code = 0, NOT_CONNECTED
        except httpx.TransportError:
            status, code = 0, ABANDONED if self._abandoned else LOST
        finished = time.perf_counter()
        due = sent if due is None else due
        return Sample(due, sent, finished, call.action, call.user, call.device, status, code)

    def abandon(self) -> None:
        """Gives up the call that is under way, if any, and every later one."""
        self._abandoned = True
        self._transport.close()

    def _request_for(self, call: Call) -> httpx.Request:
        devices = f"/v1/users/{call.user}/devices"
        if call.action == "list":
            return self._request("GET", devices)
        if call.action == "revoke":
            return self._request("DELETE", f"{devices}/{call.device}")
        return self._request("POST", devices, b'{"device_id": "%b"}' % call.device.encode())

    def _request(self, method: str, path: str, body: bytes = b"") -> httpx.Request:
        headers = self._headers
        if body:
            headers = self._headers.copy()
            headers["Content-Type"] = "application/json"
        url = self._base.copy_with(path=self._prefix + path)
        return httpx.Request(method, url, headers=headers, content=body or None)


def _code(response: httpx.Response) -> str:
    """The problem's code, where the answer is one; the body of a 2xx costs time and tells nothing more."""
    if response.status_code < 400:
        return ""
    try:
        problem = json.loads(response.content)
    except ValueError:
        return ""
    code = problem.get("code") if isinstance(problem, dict) else None
    return code if isinstance(code, str) else ""
