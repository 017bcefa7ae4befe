"""What happens to every request before a route sees it, and to every answer after that."""

import re
from collections.abc import MutableMapping
from typing import Any

import uuid_utils
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import AppError, BodyTooLarge, NotFound
from app.problems import answer

MOST_BODY_BYTES = 65_536
# In a request's state: the AppError by which the server ends it, from its start or while its body is read.
REFUSAL = "refusal"
FILES = "/docs/"  # the explorer's, the same for everybody
_ALWAYS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:+/=@-]{1,128}")


class AnswerHeaders:
    """Give each answer the headers that all have; a route's own of the same name wins.

    `X-Request-ID` is the caller's if that is a sane token, else a new one. The others keep browsers from
    making more of an answer than it is, and caches from keeping what a key was needed for.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode(
            "latin-1"
        )
        request_id = given if _SANE_REQUEST_ID.fullmatch(given) else str(uuid_utils.uuid4())
        scope.setdefault("state", {})["request_id"] = request_id
        headers = {b"x-request-id": request_id.encode("latin-1"), **_ALWAYS}
        if not scope["path"].startswith(FILES):
            headers[b"cache-control"] = b"no-store"
        if scope["scheme"] == "https":
            headers[b"strict-transport-security"] = b"max-age=31536000"
        await self._app(scope, receive, _with_headers(send, headers))


def _with_headers(send: Send, headers: dict[bytes, bytes]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", ()))
            names = {name for name, _ in own}
            message["headers"] = [*own, *(pair for pair in headers.items() if pair[0] not in names)]
        await send(message)

    return send_with_headers


class ListedOrigins(CORSMiddleware):
    """CORS for the origins that are listed; any other is answered as if there was no CORS."""

    def __init__(self, app: ASGIApp, origins: list[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"),
            allow_headers=("Authorization", "Idempotency-Key", "If-Match", "X-Request-ID"),
            expose_headers=("ETag", "Idempotent-Replayed", "Location", "Retry-After", "X-Request-ID"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is None or not self.is_allowed_origin(origin):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class Refusals:
    """Answer what the server refused before it was a call, and an address that hides a slash."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal: AppError | None = None
        if scope["type"] == "http":
            refusal = scope["state"].get(REFUSAL)
            # The router would see two segments where whoever stands before the service has seen one.
            if b"%2f" in scope["raw_path"].lower():
                refusal = refusal or NotFound()
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await answer(Request(scope), refusal)(scope, receive, send)


class HeadAsGet:
    """Have HEAD answered as GET; the server leaves the body out (RFC 9110, section 9.3.2).

    FastAPI's routes know only the methods that they are given.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}  # a copy: the server looks at its own
        try:
            await self._app(as_get, receive, send)
        finally:
            scope["route"] = as_get.get("route")


class BodyLimit:
    """Answer 413 as soon as a body is, or says that it is, above 64 KiB; the rest of it is not kept.

    Starlette has a limit too; its answer is plain text and has no request id.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > MOST_BODY_BYTES:
            await answer(request, BodyTooLarge(MOST_BODY_BYTES))(scope, receive, send)
            return
        await self._app(scope, _counted(receive, scope["state"]), send)


def _counted(receive: Receive, state: MutableMapping[str, Any]) -> Receive:
    received = 0

    async def receive_counted() -> Message:
        nonlocal received
        message = await receive()
        if REFUSAL in state:
            raise state[REFUSAL]
        received += len(message.get("body", b""))
        if received > MOST_BODY_BYTES:
            raise BodyTooLarge(MOST_BODY_BYTES)
        return message

    return receive_counted
