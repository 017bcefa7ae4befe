"""What happens to every request before a route sees it: it gets an id, and its body gets a bound."""

import re
import uuid

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import BodyTooLarge
from app.problems import answer

MOST_BODY_BYTES = 65_536
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:+/=@-]{1,128}")


class RequestIds:
    """Give each request the caller's X-Request-ID if that is a sane token, else a new one; answer with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode(
            "latin-1"
        )
        request_id = given if _SANE_REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        scope.setdefault("state", {})["request_id"] = request_id
        await self._app(scope, receive, _with_header(send, request_id))


def _with_header(send: Send, request_id: str) -> Send:
    async def send_with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [pair for pair in message.get("headers", ()) if pair[0] != b"x-request-id"]
            message["headers"] = [*headers, (b"x-request-id", request_id.encode("latin-1"))]
        await send(message)

    return send_with_header


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
        await self._app(scope, _counted(receive), send)


def _counted(receive: Receive) -> Receive:
    received = 0

    async def receive_counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MOST_BODY_BYTES:
            raise BodyTooLarge(MOST_BODY_BYTES)
        return message

    return receive_counted
