"""Where key sets are read from: a file, an address, a secret. Each reading is bounded in time and size."""

import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from socket import SHUT_RDWR, socket
from threading import Timer

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.util import Url, parse_url

from app import __version__
from app.auth.jwks import ASYMMETRIC, SYMMETRIC, KeySet, parse_key_set, secret_as_key_set
from app.settings import Settings

READ_SECONDS = 5.0
MOST_BYTES = 262_144
_HEADERS = {"Accept": "application/jwk-set+json, application/json", "User-Agent": f"cupo/{__version__}"}

ReadKeys = Callable[[], KeySet]


class Unreadable(Exception):
    """There is no key set to be had there now; the text says where and why."""


def key_source(settings: Settings) -> tuple[str, ReadKeys] | None:
    """The setting that says where the keys are, and what reads them; None where users have no tokens.

    The reader blocks, and raises Unreadable.
    """
    if settings.jwks_url is not None:
        return "CUPO_JWKS_URL", partial(_keys, settings.jwks_url, partial(read_url, settings.jwks_url))
    if settings.jwks_file is not None:
        return "CUPO_JWKS_FILE", partial(_keys, settings.jwks_file, partial(_read_file, settings.jwks_file))
    if settings.jwt_hs256_secret is not None:
        keys = parse_key_set(
            secret_as_key_set(settings.jwt_hs256_secret.get_secret_value().encode()), SYMMETRIC
        )
        return "CUPO_JWT_HS256_SECRET", lambda: keys
    return None


def _keys(place: str, read: Callable[[], bytes]) -> KeySet:
    try:
        return parse_key_set(read(), ASYMMETRIC)
    except (OSError, HTTPError, HTTPException, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise Unreadable(f"{place}: {reason or error or type(error).__name__}") from None


def _read_file(name: str) -> bytes:
    with Path(name).open("rb") as file:
        return _bounded(file.read(MOST_BYTES + 1))


def _bounded(document: bytes) -> bytes:
    if len(document) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES} bytes")
    return document


def read_url(url: str, within_seconds: float = READ_SECONDS) -> bytes:
    """What is published at `url`. Follows no redirect, which could lead anywhere, and decompresses nothing.

    Raises OSError, ValueError, urllib3's HTTPError, http.client's HTTPException.
    """
    address = parse_url(url)
    connection = _connection(address, within_seconds)
    # The time-out of a connection is for each single read: one byte at a time would last for ever.
    deadline = Timer(within_seconds, _cut, [connection])
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("GET", address.request_uri, headers=_HEADERS, preload_content=False)
        with closing(connection.getresponse()) as response:
            if response.status != 200:
                raise ValueError(f"the answer is {response.status}")
            document = _bounded(response.read(MOST_BYTES + 1, decode_content=False))
            response.read(decode_content=False)  # raises where the rest did not come
        return document
    finally:
        deadline.cancel()
        connection.close()


def _connection(address: Url, within_seconds: float) -> HTTPConnection:
    host = (address.host or "").strip("[]")
    if address.scheme == "https":
        return HTTPSConnection(
            host, address.port, timeout=within_seconds, ssl_context=ssl.create_default_context()
        )
    return HTTPConnection(host, address.port, timeout=within_seconds)


def _cut(connection: HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):  # it has just ended by itself
            socket.shutdown(connection.sock, SHUT_RDWR)
