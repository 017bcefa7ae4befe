"""Traces, which are off unless `CUPO_TRACES` is on: until then nothing of OpenTelemetry is imported.

A request's span holds those of its transactions, and a transaction's those of its statements.
"""

import importlib
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from sqlalchemy.engine import Engine

from app.recording import Transaction
from app.settings import Settings


class Span(Protocol):
    def tell(self, facts: dict[str, Any]) -> None:
        """Add what is known at the end of it."""


class Spans(Protocol):
    """What `app.spans` makes with OpenTelemetry."""

    def request(self, scope: MutableMapping[str, Any]) -> AbstractContextManager[Span]: ...
    def transaction(self, record: Transaction) -> AbstractContextManager[None]: ...
    def delivery(self, event_type: str) -> AbstractContextManager[Span]: ...
    def watch_statements(self, engine: Engine) -> None: ...
    def outgoing_headers(self) -> dict[str, str]: ...
    def stop(self) -> None: ...


class _NoSpan:
    def tell(self, facts: dict[str, Any]) -> None:
        pass


_NO_SPAN = _NoSpan()
_spans: Spans | None = None


def start(settings: Settings) -> None:
    """Begin to trace where that is set, before the engines are made that are to be traced."""
    global _spans  # noqa: PLW0603 - a process has one
    if settings.traces == "on" and _spans is None:
        _spans = importlib.import_module("app.spans").OpenTelemetry()


def stop() -> None:
    """Send what is still to be sent, for at most two seconds, and trace no more."""
    global _spans  # noqa: PLW0603 - a process has one
    if _spans is not None:
        _spans.stop()
        _spans = None


def request_span(scope: MutableMapping[str, Any]) -> AbstractContextManager[Span]:
    """A span for the request, a child of the one that its `traceparent` names."""
    return nullcontext(_NO_SPAN) if _spans is None else _spans.request(scope)


def transaction_span(record: Transaction) -> AbstractContextManager[None]:
    return nullcontext() if _spans is None else _spans.transaction(record)


def delivery_span(event_type: str) -> AbstractContextManager[Span]:
    """A span for one attempt to deliver. `outgoing_headers` inside it are for the receiver."""
    return nullcontext(_NO_SPAN) if _spans is None else _spans.delivery(event_type)


def watch_statements(engine: Engine) -> None:
    """Give each statement of this engine a span; where traces are off, the engine stays as it is."""
    if _spans is not None:
        _spans.watch_statements(engine)


def outgoing_headers() -> dict[str, str]:
    """What a request to another service carries, so that its spans become children of the current one."""
    return {} if _spans is None else _spans.outgoing_headers()
