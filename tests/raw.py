"""HTTP by hand, for what no decent client would send."""

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
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        method = request.split(b" ", 1)[0].decode("latin-1")
        response = HTTPResponse(connection, method=method)
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())


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
