"""The server below the application: uvicorn's protocol over llhttp, with bounds on what a client may send.

uvicorn bounds neither the size nor the duration of a request, and answers bad HTTP in plain text. Here each
such request gets a problem document from the application, in its turn, and the connection is closed after it.
"""

import asyncio
import logging
import struct
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Literal

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.errors import AppError, BodyTooLarge, Overloaded, RequestTimeout
from app.heads import MOST_HEAD_BYTES, refusal_of_error, refusal_of_head, start_of_last_line, too_large
from app.middleware import MOST_BODY_BYTES, REFUSAL

log = logging.getLogger(__name__)

MOST_WAITING_CALLS = 100  # sent on one connection before the answer to the first
STOPPING_SECONDS = 2.0  # what a client has left of its time once the service stops
_LINGER_SECONDS = 1.0  # then the client has read why
_AT_ONCE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one client may cost. A body's seconds are also those that it has to take an answer."""

    connections: int
    head_seconds: float
    body_seconds: float


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A request costs a timer only where it does not arrive in one piece."""

    def __init__(self, *args: Any, bounds: Bounds, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bounds = bounds
        self._arriving: Literal["head", "body"] | None = None
        self._head_bytes = self._chunk_bytes = self._framing_bytes = 0
        self._last_line = b""
        self._is_refused = False
        self._arrival: asyncio.TimerHandle | None = None
        self._departure: asyncio.TimerHandle | None = None
        self._stop: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > 2 * self._bounds.connections:
            transport.abort()  # so many that not even a refusal can be afforded
        elif len(self.connections) > self._bounds.connections:
            self._refuse(Overloaded("There are too many connections."))
        else:
            self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._arrival, self._departure, self._stop):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return  # read and dropped: to close on what is not read would take the answer from the client
        if self._arriving is None:
            data = data.lstrip(b"\r\n")  # before a request they are to be ignored: RFC 9112, section 2.2
            if not data:
                return
            self._head_bytes = 0
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except HttpParserError as error:
            self._refuse(refusal_of_error(error, data))
        else:
            if self._arriving is not None:
                self._bound_what_arrives(data)

    def _parse(self, data: bytes) -> None:
        while data:
            before = self._arriving
            self._chunk_bytes = len(data)
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :]
                continue
            if before == "body":
                self._framing_bytes += len(data)
            return

    def _without_upgrade(self) -> bytes:
        """The request's head as of a client that asks for no other protocol (RFC 9110, section 7.8).

        The parser would take its body for that protocol, and what comes after it for a request. Java's own
        client asks for HTTP/2 with each call.
        """
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = HttpRequestParser(self)
        return b"\r\n".join([*lines, b"", b""])

    def _bound_what_arrives(self, received: bytes) -> None:
        if self._arriving == "head":
            self._head_bytes += len(received)
            self._last_line = start_of_last_line(self._last_line, received)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(too_large(self._last_line))
                return
        elif self._framing_bytes > MOST_BODY_BYTES:
            self._refuse(BodyTooLarge(MOST_BODY_BYTES))
            return
        if self._arrival is None:
            self._expect_more()

    def on_message_begin(self) -> None:
        self._arriving = "head"
        self._last_line = b""
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        refusal = self._refusal_of_head()
        if refusal is not None:
            raise refusal
        if self.parser.should_upgrade():
            return  # comes again from `_without_upgrade`
        self._all_is_here()
        super().on_headers_complete()
        self.headers = []  # for trailers, which else would pass for header fields
        self._arriving = "body"
        self._framing_bytes = 0

    def _refusal_of_head(self) -> AppError | None:
        method = self.parser.get_method().decode("ascii")
        refusal = refusal_of_head(method, self.url, self.headers, self.parser.get_http_version())
        if refusal is None and len(self.pipeline) >= MOST_WAITING_CALLS:
            return Overloaded("Too many calls were sent before the first was answered.")
        return refusal

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._arriving == "head":
            return  # asks for another protocol
        self._all_is_here()
        self._arriving = None
        self._head_bytes = -self._chunk_bytes  # what is left of this chunk is not known, but less
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._expect_departure()
        if self._stop is not None and self._is_refused:
            self._stop.cancel()
            self._stop = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def shutdown(self) -> None:
        """The service stops: what has come whole is answered, who is slow gets a moment and no more.

        Else the stop would take as long as the slowest client may, or cut calls off that are under way.
        """
        super().shutdown()
        if not self.transport.is_closing():
            self._stop = self.loop.call_later(STOPPING_SECONDS, self._wait_no_longer)
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None
            self._expect_departure()

    def _wait_no_longer(self) -> None:
        stops = Overloaded("The service is stopping.")
        for waiting, _ in self.pipeline:
            waiting.scope["state"][REFUSAL] = stops
        if self._arriving == "body" and not self._is_refused:
            self._refuse(stops)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_departure()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None

    def _expect_more(self) -> None:
        body = self._arriving == "body"
        seconds = self._bounds.body_seconds if body else self._bounds.head_seconds
        self._arrival = self.loop.call_later(seconds, self._arrives_too_late, seconds)

    def _all_is_here(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _arrives_too_late(self, seconds: float) -> None:
        self._arrival = None
        if self._arriving is None:
            self.transport.close()  # nothing was asked, so nothing is answered
        elif self._arriving == "body" and self.flow.read_paused:
            self._expect_more()  # it is not the client who waits
        else:
            self._refuse(RequestTimeout(self._arriving, seconds))

    def _expect_departure(self) -> None:
        if self._departure is None:
            seconds = self._bounds.body_seconds
            if self._stop is not None or self.transport.is_closing():
                seconds = min(STOPPING_SECONDS, seconds)
            self._departure = self.loop.call_later(seconds, self._departs_too_late)

    def _departs_too_late(self) -> None:
        self._departure = None
        if self.transport.get_write_buffer_size():
            # A reset: the kernel would go on keeping what the client does not take.
            self.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, _AT_ONCE)
            self.transport.abort()

    def _refuse(self, error: AppError) -> None:
        """Have the application answer with `error`, after the calls before this one, and close."""
        self._is_refused = True
        self._all_is_here()
        log.info("Refused what %s sent: %s", self.client and self.client[0], error.code)
        if self._arriving != "body":
            self._refuse_what_is_no_call(error)
        elif self.cycle.response_started:
            self.transport.close()
        else:
            self.cycle.transport = _Lingering(self.transport)
            self.cycle.keep_alive = False
            self.cycle.scope["state"][REFUSAL] = error
            self.cycle.message_event.set()  # the call may be waiting for its body

    def _refuse_what_is_no_call(self, error: AppError) -> None:
        if self._arriving is None:
            super().on_message_begin()
        state: dict[str, Any] = {**self.app_state, REFUSAL: error}
        call: dict[str, Any] = {"method": "GET", "path": "/", "raw_path": b"/", "query_string": b""}
        earlier = self.cycle
        self.cycle = RequestResponseCycle(
            scope={**self.scope, **call, "state": state},  # type: ignore[typeddict-item] # all are there
            transport=_Lingering(self.transport),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.pipeline.appendleft((self.cycle, self.app))


class _Lingering(asyncio.Transport):
    """A transport whose close ends what we send and goes on reading, for as long as an idle connection lives.

    Closed at once, it would answer what still comes by a reset, which may take the answer from the client
    (RFC 9112, section 9.6).
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.write_eof()
