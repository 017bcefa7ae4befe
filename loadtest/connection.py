"""One kept connection as an httpx transport, for the calls that are measured.

httpx's own transport costs more than a millisecond of processor time per call, and a pool that many calls
share costs the square of their number; both would be measured as if the service had taken the time. This
one is a single connection with an incremental parser underneath httpx's Request and Response. Not for
general use: one call at a time, no proxy, no redirect, HTTP/1.1 only.
"""

import asyncio
import ssl
import time
from typing import cast

import httptools
import httpx

# Servers commonly close a connection that was idle for 5 s. Closing first means that no call is written
# into a connection that the server is just giving up, which would look like a lost answer.
IDLE_SECONDS = 4.0


class Wire(asyncio.Protocol):
    """The bytes of one TCP connection, parsed into one answer at a time."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[httpx.Response] | None = None
        self.transport: asyncio.Transport | None = None
        self.open = False
        self.used_at = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.open = True
        self.used_at = time.perf_counter()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(f"not an HTTP answer: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._fail(httpx.ReadError(str(exc) if exc else "the connection was closed before the answer"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and its like announce the answer, they are not it
            self._headers, self._body = [], []
            return
        if not self._parser.should_keep_alive():
            self.close()
        response = httpx.Response(status, headers=self._headers, content=b"".join(self._body))
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(response)

    def ask(self, head_and_body: bytes) -> "asyncio.Future[httpx.Response]":
        assert self.transport is not None  # noqa: S101 - ask() follows connection_made, always
        self._begin()
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(head_and_body)
        return self.answer

    def close(self) -> None:
        self.open = False
        if self.transport is not None:
            self.transport.close()

    def _fail(self, error: httpx.TransportError) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


class OneConnection(httpx.AsyncBaseTransport):
    """A transport that keeps one connection to one target and opens it again when it was closed."""

    def __init__(self, target: httpx.URL, tls: ssl.SSLContext | None) -> None:
        self._host = target.host
        self._port = target.port or (443 if target.scheme == "https" else 80)
        self._tls = tls if target.scheme == "https" else None
        self._wire: Wire | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        wire = await self._ready_wire()
        path = request.url.raw_path
        lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode(), path)]
        lines += [b"%b: %b\r\n" % header for header in request.headers.raw]
        try:
            response = await wire.ask(b"".join([*lines, b"\r\n", request.content]))
        except asyncio.CancelledError:
            wire.close()  # the answer that is still to come must not be taken for the next call's
            raise
        wire.used_at = time.perf_counter()
        return response

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    async def _ready_wire(self) -> Wire:
        wire = self._wire
        if wire is not None and wire.open and time.perf_counter() - wire.used_at < IDLE_SECONDS:
            return wire
        self.close()
        loop = asyncio.get_running_loop()
        try:
            _, wire = await loop.create_connection(Wire, self._host, self._port, ssl=self._tls)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        self._wire = wire
        return wire
