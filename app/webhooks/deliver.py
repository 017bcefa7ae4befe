"""One attempt at a delivery: a signed POST, over at the latest after 15 s."""

import http.client
import os
import re
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

from app import __version__
from app.texts import TEST_EVENT_TYPE
from app.webhooks.addresses import Target, parse_url
from app.webhooks.connections import Bounds, Connection, Connections, TooLarge, Unreachable
from app.webhooks.deliveries import Delivery
from app.webhooks.messages import body_of, id_of
from app.webhooks.signing import signed_headers

ATTEMPT_SECONDS = 15.0
MOST_BODY_BYTES = 4_096
# All that is read of an answer: its headers as well, and what a buffer reads ahead.
MOST_ANSWER_BYTES = 32_768

_HEADERS = {"Content-Type": "application/json", "User-Agent": f"Cupo/{__version__}"}
_NONE: Mapping[str, str] = {}
_GONE = 410
_MAY_SAY_WHEN = {429, 503}


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of it. `gone`: the receiver says that it is there no longer, for good.

    `error` is for people, and holds neither secrets nor addresses that a name led to. `excerpt` is the start
    of the answer's body, at most 4 KiB.
    """

    outcome: Literal["delivered", "failed", "gone"]
    duration_seconds: float
    status: int | None = None
    error: str | None = None
    excerpt: str = ""
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Post:
    path: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    retry_after: str | None
    body: bytes


def deliver(connections: Connections, delivery: Delivery, headers: Mapping[str, str] = _NONE) -> Attempt:
    """Make one attempt, with these headers beside its own. Delivered is what is answered by a 2xx.

    Redirects are not followed.
    Raises nothing that a receiver, its name or the network could cause. Safe to call from several threads.
    """
    if delivery.event is None and delivery.type != TEST_EVENT_TYPE:
        # Its user is being erased: the event went first, and this row goes when it is settled.
        return Attempt("failed", 0.0, error="what it told of was erased")
    began_at = time.monotonic()
    try:
        answer = _answer(connections, delivery, headers)
    except (OSError, http.client.HTTPException, Unreachable, TooLarge) as error:
        return Attempt("failed", time.monotonic() - began_at, error=_in_words(error))
    duration_seconds = time.monotonic() - began_at
    excerpt = answer.body.decode(errors="replace")
    if 200 <= answer.status < 300:
        return Attempt("delivered", duration_seconds, answer.status, excerpt=excerpt)
    return Attempt(
        "gone" if answer.status == _GONE else "failed",
        duration_seconds,
        answer.status,
        error=_refusal(answer.status),
        excerpt=excerpt,
        retry_after_seconds=_seconds(answer.retry_after) if answer.status in _MAY_SAY_WHEN else None,
    )


def _answer(connections: Connections, delivery: Delivery, headers: Mapping[str, str]) -> _Answer:
    target = _target(connections, delivery.endpoint.url)
    bounds = Bounds(ATTEMPT_SECONDS, MOST_ANSWER_BYTES)
    body = body_of(delivery)
    signed = signed_headers(delivery.endpoint.secrets, id_of(delivery), int(time.time()), body)
    post = _Post(target.path, body, {**headers, **_HEADERS, **signed})
    connection = connections.take(target)
    was_kept = connection.sock is not None
    try:
        return _exchange(connections, connection, bounds, post)
    except (ConnectionError, ssl.SSLError):
        # The receiver may have ended a kept connection at the very moment. It has this POST from a new one,
        # or for a second time, which its webhook-id tells.
        if not was_kept or bounds.received_bytes:
            raise
    return _exchange(connections, connections.new(target), bounds, post)


def _target(connections: Connections, url: str) -> Target:
    """Where the URL leads, by the rules of now, which may be stricter than when it was given."""
    try:
        return parse_url(url, allow_http=connections.allow_http, allow_private=connections.allow_private)
    except ValueError as refused:
        raise Unreachable(f"its URL {refused}") from None


def _exchange(connections: Connections, connection: Connection, bounds: Bounds, post: _Post) -> _Answer:
    connection.begin(bounds)
    try:
        connection.request("POST", post.path, post.body, post.headers)
        with connection.getresponse() as response:
            start = _start_of_body(response)
            is_whole = (response.isclosed() or response.length == 0) and not response.will_close
        answer = _Answer(response.status, response.getheader("Retry-After"), start[:MOST_BODY_BYTES])
    except BaseException:
        connection.close()
        raise
    if is_whole and response.status >= 200:
        connections.keep(connection)
    else:
        connection.close()
    return answer


def _start_of_body(response: http.client.HTTPResponse) -> bytes:
    """What comes of it in time. The status has told all that counts, so what fails here fails nothing."""
    start = b""
    with suppress(OSError, http.client.HTTPException, TooLarge):
        # One byte more than is kept: an answer of just that length is then known to be read to its end.
        while len(start) <= MOST_BODY_BYTES and (more := response.read1(MOST_BODY_BYTES + 1 - len(start))):
            start += more
    return start


def _seconds(retry_after: str | None) -> float | None:
    """Seconds, or an instant (RFC 9110, section 10.2.3); None for anything else."""
    if retry_after is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"answered {status}; redirects are not followed"
    return f"answered {status}"


def _in_words(error: Exception) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {ATTEMPT_SECONDS:g} s"
        case TooLarge():
            return "answered with too many bytes"
        case Unreachable():
            return str(error)
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or error}"
        case http.client.RemoteDisconnected() | ConnectionResetError() | BrokenPipeError():
            return "ended the connection without an answer"
        case OSError():
            return f"cannot be connected to: {os.strerror(error.errno) if error.errno else error}"
        case http.client.HTTPException():
            return "answered with what is not HTTP"
    raise error
