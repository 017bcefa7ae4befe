"""HTTP by hand, for what no decent client would send."""

import io
import json
import socket
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from tests.services import ROOT_KEY, Service

PATIENCE_SECONDS = 15


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def send(service: Service, request: bytes) -> Answer:
    """The answer to `request`, byte for byte as it is given."""
    with connected(service) as connection:
        connection.sendall(request)
        return answer_to(request, connection)


def answer_to(request: bytes, connection: socket.socket) -> Answer:
    """The next answer, whole."""
    method = request.split(b" ", 1)[0].decode("latin-1")
    response = HTTPResponse(connection, method=method)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def all_answers(service: Service, *parts: bytes) -> list[Answer]:
    """What comes back until the service closes the connection; each of `parts` is sent by itself."""
    with connected(service) as connection:
        for part in parts:
            connection.sendall(part)
        return answers_of(connection)


def connected(service: Service) -> socket.socket:
    address = urlsplit(service.url)
    return socket.create_connection((address.hostname, address.port), PATIENCE_SECONDS)


def answers_of(connection: socket.socket) -> list[Answer]:
    """All answers that are still to come, up to the end of the connection."""
    received = _Received(b"".join(iter(lambda: connection.recv(65_536), b"")))
    answers = []
    while received.tell() < len(received.getbuffer()):
        response = HTTPResponse(received)  # type: ignore[arg-type] # it only asks for the file
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        answers.append(Answer(response.status, headers, response.read()))
    return answers


class _Received(io.BytesIO):
    """In place of a socket: http.client reads one answer of it after another."""

    def makefile(self, _mode: str) -> io.BytesIO:
        return self

    def close(self) -> None:
        """Asked for after each answer."""


def request(
    method: str, target: str, *headers: bytes, body: bytes = b"", key: str | None = ROOT_KEY
) -> bytes:
    """A request with a Content-Length, and the key unless it is None; each header is a whole line."""
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1"), b"Host: cupo.test", *headers]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}".encode())
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])
