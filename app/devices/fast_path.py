"""Registrations as most clients send them, answered before the framework's routing and parsing.

Whatever is not of that plain form, or wrong in it, goes on to the route untouched, so that there is one place
which tells what a call may be and what is wrong with it. See docs/decisions/0025-the-fast-path.md.
"""

import re
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.auth.principal import bearer_of, user_meant
from app.auth.scopes import ACCESS
from app.devices.routes import register_device, registration_answer, router
from app.devices.schemas import NewDevice
from app.errors import AppError, MalformedJson
from app.http import IDEMPOTENCY_KEY, parse_json
from app.idempotency.queries import Answer
from app.middleware import REFUSAL
from app.origin import Origin
from app.problems import answer
from app.texts import USER_ID_PATTERN, user_id

MOST_BYTES = 8192
_PATH = re.compile(rb"/v1/users/([0-9]{1,20}|me)/devices")
_USER = re.compile(USER_ID_PATTERN)
# What is longer may be refused before anybody is asked who they are.
_LENGTH = re.compile(rb"[1-9][0-9]{0,3}")
_ROUTE = next(route for route in router.routes if getattr(route, "endpoint", None) is register_device)
_ACCESS = ACCESS["registerDevice"]
_BEARER = b"Bearer "
_NOT_PLAIN = (IDEMPOTENCY_KEY.encode(), b"transfer-encoding", b"expect")


class FastPath:
    """Answer a plain registration; have all else answered by what comes after."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = _plain_registration(scope)
        if plain is None:
            await self._app(scope, receive, send)
            return
        token, named = plain
        scope["route"] = _ROUTE
        service = scope["app"].state
        try:
            caller = scope["state"]["principal"] = await bearer_of(service, token)
            meant = user_meant(caller, _ACCESS, named)
            message = await receive()
            new = _plain_body(message, scope)
            if new is None or meant is None or not _USER.fullmatch(meant):
                await self._app(scope, _again(message, receive), send)
                return
            origin = Origin(caller.actor, scope["state"]["request_id"])
            done = await registration_answer(service.groups, origin, user_id(meant), new)
        except AppError as error:
            await answer(Request(scope), error)(scope, receive, send)
        else:
            await _send(done, send)


def _plain_registration(scope: Scope) -> tuple[str, str] | None:
    """The token and the user of a request that has what a registration needs and nothing else of note."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    path = _PATH.fullmatch(scope["raw_path"])  # as it was sent: a slash may be hidden in it
    headers = dict(scope["headers"])
    credentials = headers.get(b"authorization", b"")
    token = credentials[len(_BEARER) :]
    if (
        path is None
        or REFUSAL in scope["state"]
        or len(headers) != len(scope["headers"])
        or headers.get(b"content-type") != b"application/json"
        or not _LENGTH.fullmatch(headers.get(b"content-length", b""))
        or not credentials.startswith(_BEARER)
        or not token
        or token != token.strip()
        or any(name in headers for name in _NOT_PLAIN)
    ):
        return None
    return token.decode("latin-1"), path[1].decode("ascii")


def _plain_body(message: Message, scope: Scope) -> NewDevice | None:
    body = message.get("body", b"")
    if message.get("more_body") or REFUSAL in scope["state"] or not 0 < len(body) <= MOST_BYTES:
        return None
    try:
        new = NewDevice.model_validate(parse_json(body))
    except (MalformedJson, ValidationError):
        return None
    return new if new.on_limit == "reject" else None


async def _send(done: Answer, send: Send) -> None:
    body = done.body.encode()
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in done.headers.items()]
    headers += ((b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": done.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _again(message: Message, receive: Receive) -> Receive:
    """`receive`, which gives this message first."""
    waiting: list[Any] = [message]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again
