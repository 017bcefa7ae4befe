"""Receivers of webhooks that do whatever a test wants of them, over real sockets."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from loadtest.ports import LOOPBACK


@dataclass(frozen=True)
class Received:
    """A request; the names of its headers are in small letters."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Listens on the loopback. `connections` counts those that it has accepted."""

    port: int
    scheme: str
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{LOOPBACK}:{self.port}/hook"

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the test is over."""
        if self.stop.wait(seconds):
            raise ConnectionAbortedError


Behaviour = Callable[[Receiver, socket.socket], None]


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join((*lines, "", "")).encode() + body


def answering(*answers: bytes) -> Behaviour:
    """Answer one request after the other with these bytes, the last ones again and again."""

    def behave(receiver: Receiver, sock: socket.socket) -> None:
        with sock.makefile("rb") as stream:
            while line := stream.readline().decode().strip():
                headers = {}
                while header := stream.readline().decode().strip():
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", "0")))
                receiver.received.append(Received(line, headers, body))
                sock.sendall(answers[min(len(receiver.received), len(answers)) - 1])

    return behave


def trickling(start: bytes, more: bytes, pause_seconds: float = 0.05) -> Behaviour:
    """Send the start, then the rest of it again and again, with a pause before each."""

    def behave(receiver: Receiver, sock: socket.socket) -> None:
        sock.sendall(start)
        while True:
            receiver.pause(pause_seconds)
            sock.sendall(more)

    return behave


@contextmanager
def receiving(behaviour: Behaviour | None = None, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver that so behaves on each connection, or answers 200; with `tls`, after a handshake."""
    behave = behaviour or answering(answer(200))
    with socket.create_server((LOOPBACK, 0)) as listener:
        receiver = Receiver(listener.getsockname()[1], "https" if tls else "http")
        threads: list[threading.Thread] = []
        sockets: list[socket.socket] = []

        def serve(sock: socket.socket) -> None:
            # The other side may leave at any moment, and does.
            with suppress(OSError), sock:
                if tls is None:
                    behave(receiver, sock)
                else:
                    with tls.wrap_socket(sock, server_side=True) as secured:
                        sockets.append(secured)
                        behave(receiver, secured)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    receiver.connections += 1
                    sockets.append(sock)
                    threads.append(threading.Thread(target=serve, args=(sock,)))
                    threads[-1].start()

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield receiver
        finally:
            receiver.stop.set()
            # Closing it alone would not wake the thread that waits in accept().
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for sock in sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
