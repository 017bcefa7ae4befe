"""`cupo` without its fast path: each request takes the framework's way."""

from starlette.types import ASGIApp, Receive, Scope, Send

from app import main
from app.cli import main as cupo


class NoFastPath:
    """Hands every request on, as the fast path does with those that are not plain."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


if __name__ == "__main__":
    setattr(main, "FastPath", NoFastPath)  # noqa: B010 - to mypy it is a class
    cupo()
