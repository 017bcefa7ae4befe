"""What the head of a request may be, and by what it is refused. Pure."""

import re

from httptools import HttpParserError, HttpParserInvalidMethodError

from app.auth.errors import UnknownCredential
from app.errors import AppError, HeadTooLarge, MalformedRequest, MethodNotAllowed

MOST_HEAD_BYTES = 16_384
MOST_FIELDS = 100
METHODS = "DELETE, GET, HEAD, PATCH, POST, PUT"
_CREDENTIAL = b"authorization"
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) \S+ HTTP/1\.[01]\r\n")


def refusal_of_head(
    method: str, target: bytes, headers: list[tuple[bytes, bytes]], version: str
) -> AppError | None:
    """Why a head that has come whole is refused; None if it is not. Names of fields are in lower case."""
    size = len(target) + sum(len(name) + len(value) + 4 for name, value in headers)
    if size > MOST_HEAD_BYTES or len(headers) > MOST_FIELDS:
        longest = max(headers, key=lambda field: len(field[1]), default=(b"", b""))
        return too_large(b"%s:" % longest[0])
    if method == "CONNECT":
        return MethodNotAllowed(method, METHODS)
    fault = _fault(target, headers, version)
    return MalformedRequest(fault) if fault else None


def too_large(line: bytes) -> AppError:
    """By the line that was too much: a credential of that length is none that counts (401)."""
    if line.lower().startswith(_CREDENTIAL + b":"):
        return UnknownCredential()
    return HeadTooLarge(MOST_HEAD_BYTES, MOST_FIELDS)


def start_of_last_line(so_far: bytes, received: bytes) -> bytes:
    """Of the line that has not ended yet, as much as tells the field."""
    _, ended, last = received.rpartition(b"\n")
    return (last if ended else so_far + received)[: len(_CREDENTIAL) + 1]


def refusal_of_error(error: HttpParserError, data: bytes) -> AppError:
    if isinstance(error.__context__, AppError):  # raised by a callback, which the parser wraps
        return error.__context__
    asked = _REQUEST_LINE.match(data)
    if isinstance(error, HttpParserInvalidMethodError) and asked:
        return MethodNotAllowed(asked[1].decode("ascii"), METHODS)
    return MalformedRequest("This is not HTTP/1.1 as RFC 9112 has it.")


def _fault(target: bytes, headers: list[tuple[bytes, bytes]], version: str) -> str | None:
    """What another reader of this head may understand otherwise; llhttp has looked at the rest."""
    names = [name for name, _ in headers]
    if version not in {"1.0", "1.1"}:
        return "This is not HTTP/1.1."
    if names.count(b"host") != 1 and (version == "1.1" or b"host" in names):
        return "There must be one Host."  # RFC 9112, section 3.2
    if b"#" in target:
        return "A request's target has no fragment."
    if b"transfer-encoding" in names:
        codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
        if codings != [b"chunked"] or version != "1.1":
            return "The only Transfer-Encoding is chunked, of HTTP/1.1."
    return None
