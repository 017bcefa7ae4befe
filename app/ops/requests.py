"""What is told of each request once it is answered: a line of the log, and the metrics."""

import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import metrics, recording, tracing
from app.errors import InternalError

log = logging.getLogger(__name__)

# Asked every few seconds, and of no interest while they are well.
QUIET_ROUTES = frozenset({"/livez", "/readyz", "/metrics"})
# A client may send any word as its method; those that no route has are one value.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RecordedRequests:
    """Tell of each request after it was answered. Comes inside RequestIds, and around all that may refuse."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at = time.perf_counter()
        call = recording.Call(scope["state"]["request_id"])
        status = InternalError.status  # where nothing is sent below, the 500 comes from above

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with (
            metrics.REQUESTS_IN_PROGRESS.track_inprogress(),
            recording.on_behalf_of(call),
            tracing.request_span(scope) as span,
        ):
            try:
                await self._app(scope, receive, send_noted)
            except BaseException:
                scope["state"]["code"] = InternalError.code
                raise
            finally:
                facts = _facts(scope, call, status)
                span.tell(facts)
                _tell(facts, time.perf_counter() - began_at)


def _facts(scope: Scope, call: recording.Call, status: int) -> dict[str, Any]:
    route = getattr(scope.get("route"), "path", recording.UNKNOWN_ROUTE)
    principal = scope["state"].get("principal")
    return {
        "request_id": call.request_id,
        "method": scope["method"] if scope["method"] in METHODS else "unknown",
        "route": route,
        "status": status,
        "code": scope["state"].get("code", "none"),
        "client": scope["client"][0] if scope["client"] else None,
        "actor": None if principal is None else principal.actor,
        "lock_wait_seconds": round(call.lock_wait_seconds, 6),
        "attempts": call.attempts,
        "errno": call.errno,
    }


def _tell(facts: dict[str, Any], seconds: float) -> None:
    series = metrics.REQUEST_SECONDS.labels(facts["route"], facts["method"], facts["status"], facts["code"])
    series.observe(seconds)
    level = logging.DEBUG if facts["route"] in QUIET_ROUTES else logging.INFO
    if facts["status"] >= InternalError.status:
        level = logging.WARNING
    log.log(level, "Answered", extra={**facts, "seconds": round(seconds, 6)})
