"""How a call ends that the service's own end does not wait for."""

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import DatabaseUnavailable
from app.problems import answer


class AnswerWhenCancelled:
    """Answer 503 in place of a call that the server cancels, as it does when an orderly end takes too long.

    Such a call waits for its database, in a thread that goes on: whether it was done is not known, and that
    it may be repeated is what this answer says.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_answered = False

        async def send_noted(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except asyncio.CancelledError:
            if scope["type"] != "http" or is_answered:
                raise
            await answer(Request(scope), DatabaseUnavailable())(scope, receive, send)
