"""`cupo` that keeps no metrics of a call and tells nothing of it where it has `X-Unrecorded`."""

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, Self

from prometheus_client import Counter, Gauge, Histogram
from starlette.types import ASGIApp, Receive, Scope, Send

from app import main, metrics, recording
from app.cli import main as cupo

HEADER = b"x-unrecorded"

_is_off: ContextVar[bool] = ContextVar("is_off", default=False)


class Nothing:
    """Takes whatever is told to a series, and keeps none of it."""

    got_it = False

    def __getattr__(self, _name: str) -> Any:
        return self._take

    def _take(self, *_: Any, **__: Any) -> Any:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Switched:
    """A series, or nothing in place of it."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def __getattr__(self, name: str) -> Any:
        return getattr(_NOTHING if _is_off.get() else self._series, name)


class SwitchedRequests:
    """The middleware that records, which a call may go around."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._recorded = app, Recorded(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or HEADER not in (name for name, _ in scope["headers"]):
            await self._recorded(scope, receive, send)
            return
        token = _is_off.set(True)
        try:
            await self._app(scope, receive, send)
        finally:
            _is_off.reset(token)


def switched(record: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: nullcontext(_NOTHING) if _is_off.get() else record(*args)


_NOTHING = Nothing()
Recorded = main.RecordedRequests  # type: ignore[attr-defined] # mypy: not exported from there

if __name__ == "__main__":
    for name, series in list(vars(metrics).items()):
        if isinstance(series, Counter | Gauge | Histogram):
            setattr(metrics, name, Switched(series))
    for name in ("transaction", "Run", "LockWait", "registered"):
        setattr(recording, name, switched(getattr(recording, name)))
    setattr(main, "RecordedRequests", SwitchedRequests)  # noqa: B010 - to mypy it is a class
    cupo()
