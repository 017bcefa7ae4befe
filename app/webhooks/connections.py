"""Connections to receivers: to public addresses only, bounded in time and size whatever a receiver does."""

import http.client
import queue
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from app.webhooks.addresses import Target, is_public

# Common servers end a connection that is idle for 5 s, which no POST should meet.
MOST_IDLE_SECONDS = 4
# A receiver that moves is found at its new address after this, however busy it is.
MOST_LIFE_SECONDS = 60

Address = tuple[socket.AddressFamily, Any]
LookUp = Callable[[str, int], list[Address]]


class Unreachable(Exception):
    """There is nobody whom the delivery may go to. Its text says why, and names no address of ours."""


class TooLarge(Exception):
    """The receiver sends more than an answer's headers and the start of its body can be."""


class Bounds:
    """What an attempt may take: of seconds, and of bytes that the receiver sends."""

    def __init__(self, seconds: float, most_bytes: int) -> None:
        self._ends_at = time.monotonic() + seconds
        self._most_bytes = most_bytes
        self.received_bytes = 0

    def seconds_left(self) -> float:
        """Above 0; TimeoutError once the time is over."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def count(self, received_bytes: int) -> None:
        self.received_bytes += received_bytes
        if self.received_bytes > self._most_bytes:
            raise TooLarge


class _Socket(socket.socket):
    """A socket whose every operation ends with the attempt.

    A mere timeout bounds the wait for each byte: a receiver that sends one now and then would keep the
    worker's thread for as long as it likes.
    """

    bounds: Bounds

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(self.bounds.seconds_left())
        received = super().recv_into(buffer, nbytes or len(buffer), flags)
        self.bounds.count(received)
        return received

    def send(self, data: Any, flags: int = 0) -> int:
        self.settimeout(self.bounds.seconds_left())
        return super().send(data, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self.bounds.seconds_left())
        super().sendall(data, flags)


class _TlsSocket(_Socket, ssl.SSLSocket):
    """Likewise. The handshake as a whole ends by the timeout that the plain socket had."""


class Connection(http.client.HTTPConnection):
    """A connection to the origin of `target`, made when it is first used; by one attempt at a time."""

    sock: _Socket | None

    def __init__(self, target: Target, open_socket: Callable[[Target, Bounds], _Socket]) -> None:
        super().__init__(target.host, target.port)
        self.default_port = target.default_port  # the Host header leaves it out
        self.target = target
        self.bounds = Bounds(0, 0)
        self._open_socket = open_socket
        self._opened_at = self._kept_at = time.monotonic()

    def begin(self, bounds: Bounds) -> None:
        """The next attempt begins, and has `bounds`."""
        self.bounds = bounds
        if self.sock is not None:
            self.sock.bounds = bounds

    def connect(self) -> None:
        """Called by the first request. Raises Unreachable or an OSError."""
        self.sock = self._open_socket(self.target, self.bounds)

    def keep(self) -> None:
        self._kept_at = time.monotonic()

    def is_fresh(self) -> bool:
        """Whether another attempt may use it, by its age."""
        now = time.monotonic()
        return now - self._kept_at < MOST_IDLE_SECONDS and now - self._opened_at < MOST_LIFE_SECONDS

    def is_quiet(self) -> bool:
        """Nothing was asked, so whatever can be read is the connection's end, or an answer to nothing."""
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)


def look_up(host: str, port: int) -> list[Address]:
    """All addresses of `host`, by the machine's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class Connections:
    """A worker's connections. Safe to use from several threads."""

    def __init__(
        self,
        *,
        allow_http: bool = False,
        allow_private: bool = False,
        look_up: LookUp = look_up,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.allow_http = allow_http
        self.allow_private = allow_private
        self._look_up = look_up
        self._tls = tls or ssl.create_default_context()
        self._tls.sslsocket_class = _TlsSocket
        self._kept: list[Connection] = []
        self._lock = threading.Lock()

    def take(self, target: Target) -> Connection:
        """A kept connection to the target that is still good, or a new one; for the caller alone."""
        with self._lock:
            kept = next((one for one in reversed(self._kept) if one.target.origin == target.origin), None)
            if kept is not None:
                self._kept.remove(kept)
        if kept is None:
            return self.new(target)
        if kept.is_fresh() and kept.is_quiet():
            return kept
        kept.close()
        return self.new(target)

    def new(self, target: Target) -> Connection:
        return Connection(target, self._open)

    def keep(self, connection: Connection) -> None:
        """For another attempt. Its last answer was read to the end."""
        connection.keep()
        with self._lock:
            fresh = [one for one in self._kept if one.is_fresh()]
            stale = set(self._kept).difference(fresh)
            self._kept = [*fresh, connection]
        for one in stale:
            one.close()

    def close(self) -> None:
        """Close what is kept."""
        with self._lock:
            kept, self._kept = self._kept, []
        for one in kept:
            one.close()

    def _open(self, target: Target, bounds: Bounds) -> _Socket:
        """Looks the name up once, judges what it finds, and connects to exactly that.

        Who looks a name up twice, to judge and to connect, may be told two addresses (DNS rebinding).
        """
        addresses = self._addresses(target, bounds)
        # A public address beside another one is no excuse: the receiver does not choose which is taken.
        if not self.allow_private and not all(is_public(ip_address(at[0])) for _, at in addresses):
            raise Unreachable("its name leads to an address that is not public")
        plain = _connected(addresses, bounds)
        if target.scheme == "http":
            return plain
        plain.settimeout(bounds.seconds_left())  # of the whole handshake
        with plain:  # which wrap_socket leaves empty where it succeeds
            secured = self._tls.wrap_socket(plain, server_hostname=target.host)
        assert isinstance(secured, _Socket)  # noqa: S101 - see sslsocket_class
        secured.bounds = bounds
        return secured

    def _addresses(self, target: Target, bounds: Bounds) -> list[Address]:
        """In a thread of its own, which is left behind where it takes too long: a look-up has no time-out."""
        found: queue.SimpleQueue[list[Address] | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                found.put(self._look_up(target.host, target.port))
            except (OSError, UnicodeError) as error:
                found.put(error)

        threading.Thread(target=ask, name=f"look up {target.host}", daemon=True).start()
        try:
            answer = found.get(timeout=bounds.seconds_left())
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(answer, Exception):
            raise Unreachable("its name was not found") from answer
        return answer


def _connected(addresses: list[Address], bounds: Bounds) -> _Socket:
    """To the first that answers; none may take more than its share of the time that is left."""
    failure: OSError = OSError("its name has no address")
    for place, (family, address) in enumerate(addresses):
        sock = _Socket(family, socket.SOCK_STREAM)
        sock.bounds = bounds
        sock.settimeout(bounds.seconds_left() / (len(addresses) - place))
        try:
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure
