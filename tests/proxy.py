"""A TCP proxy before the database: it sees each statement, and can cut, freeze or falsify a connection.

It reads MySQL's client/server protocol in plain text: a packet is three bytes of length, one of sequence, and
the payload, whose first byte 3 is COM_QUERY (MySQL Internals, "Client/Server Protocol").
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto

from sqlalchemy.engine import make_url

COM_QUERY = 3
COM_PING = 14


class Fate(Enum):
    """What becomes of a statement."""

    PASS = auto()
    CUT_BEFORE = auto()  # the server never sees it
    CUT_AFTER = auto()  # the server carries it out, and its answer is lost


class Proxy:
    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.statements: list[str] = []
        self.fate: Callable[[str], Fate] = lambda _statement: Fate.PASS
        self.rewrite: Callable[[bytes], bytes] = lambda payload: payload  # must keep the length
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                self._sockets += [client, server]
                answer_is_lost = threading.Event()
                for pump in (self._to_server, self._to_client):
                    threading.Thread(target=pump, args=(client, server, answer_is_lost), daemon=True).start()

    def freeze(self) -> None:
        """Let nothing through in either direction, as a dead network; connections stay open."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.thaw()
        self._listener.close()
        for one in self._sockets:
            _close(one)

    def _to_server(
        self, client: socket.socket, server: socket.socket, answer_is_lost: threading.Event
    ) -> None:
        with suppress(OSError):
            for packet in _packets(client):
                self._open.wait()
                payload = self.rewrite(packet[4:])
                fate = Fate.PASS
                if statement := _statement(packet[3], payload):
                    self.statements.append(statement)
                    fate = self.fate(statement)
                if fate is Fate.CUT_BEFORE:
                    break
                if fate is Fate.CUT_AFTER:
                    answer_is_lost.set()
                server.sendall(packet[:4] + payload)
        if not answer_is_lost.is_set():
            _close(client, server)

    def _to_client(
        self, client: socket.socket, server: socket.socket, answer_is_lost: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                self._open.wait()
                if answer_is_lost.is_set():
                    break
                client.sendall(data)
        _close(client, server)


def _statement(sequence: int, payload: bytes) -> str | None:
    """What is asked of the server; a packet of another sequence than 0 continues a conversation."""
    if sequence or not payload:
        return None
    if payload[0] == COM_PING:
        return "PING"
    return payload[1:].decode(errors="replace") if payload[0] == COM_QUERY else None


def _packets(client: socket.socket) -> Iterator[bytes]:
    """Whole packets, header included."""
    data = b""
    while received := client.recv(65536):
        data += received
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:3], "little")):
            yield data[:end]
            data = data[end:]


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def proxied(database_url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server of `database_url`, and the URL that leads through it."""
    url = make_url(database_url)
    assert url.host
    assert url.port
    proxy = Proxy((url.host, url.port))
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        # MySQL offers TLS, which PyMySQL then takes; the proxy would see nothing.
        through = url.set(host="127.0.0.1", port=proxy.port).update_query_dict({"ssl_disabled": "true"})
        yield proxy, through.render_as_string(hide_password=False)
    finally:
        proxy.close()
