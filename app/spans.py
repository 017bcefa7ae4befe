"""Spans by OpenTelemetry, named and described by its semantic conventions for HTTP servers and databases.

OpenTelemetry's own variables say where they go, which of them, and under what name of a service:
`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`, … A collector that is slow or gone
loses spans and holds up nobody: they wait in a bounded queue, for a thread of its own.
"""

import os
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError

from app import __version__
from app.failures import number_of
from app.recording import UNKNOWN_ROUTE, Transaction

STOP_SECONDS = 2


class RequestSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def tell(self, facts: dict[str, Any]) -> None:
        """Name the span after its route, which is known only now."""
        if facts["route"] != UNKNOWN_ROUTE:
            self._span.update_name(f"{facts['method']} {facts['route']}")
            self._span.set_attribute("http.route", facts["route"])
        self._span.set_attributes(
            {
                "http.response.status_code": facts["status"],
                "cupo.request_id": facts["request_id"],
                "cupo.code": facts["code"],
                "cupo.attempts": facts["attempts"],
                "cupo.lock_wait_seconds": facts["lock_wait_seconds"],
            }
        )
        if facts["status"] >= 500:
            self._span.set_attribute("error.type", facts["code"])
            self._span.set_status(StatusCode.ERROR)


class DeliverySpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def tell(self, facts: dict[str, Any]) -> None:
        if facts["status"] is not None:
            self._span.set_attribute("http.response.status_code", facts["status"])
        if facts["outcome"] != "delivered":
            self._span.set_attribute("error.type", facts["outcome"])
            self._span.set_status(StatusCode.ERROR)


class OpenTelemetry:
    def __init__(self, exporter: SpanExporter | None = None) -> None:
        name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "cupo"}
        resource = Resource.create({**name, "service.version": __version__})
        # Its own hook at exit would wait for a collector that does not answer; see `stop`.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("cupo", __version__)

    @contextmanager
    def request(self, scope: MutableMapping[str, Any]) -> Iterator[RequestSpan]:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {
            "http.request.method": scope["method"],
            "url.path": scope["path"],
            "url.scheme": scope["scheme"],
        }
        with self._tracer.start_as_current_span(
            scope["method"], propagate.extract(headers), SpanKind.SERVER, attributes
        ) as span:
            yield RequestSpan(span)

    @contextmanager
    def transaction(self, record: Transaction) -> Iterator[None]:
        # What leaves it is mostly a refusal, which is no error of the transaction.
        with self._tracer.start_as_current_span(
            record.name, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            finally:
                span.set_attribute("cupo.outcome", record.outcome)
                span.set_attribute("cupo.attempts", record.attempts)
                span.set_attribute("cupo.lock_wait_seconds", record.lock_wait_seconds)
                if record.outcome in {"given_up", "failed"}:
                    span.set_status(StatusCode.ERROR)

    @contextmanager
    def delivery(self, event_type: str) -> Iterator[DeliverySpan]:
        attributes = {"http.request.method": "POST", "cupo.event_type": event_type}
        with self._tracer.start_as_current_span("POST", kind=SpanKind.CLIENT, attributes=attributes) as span:
            yield DeliverySpan(span)

    def watch_statements(self, engine: Engine) -> None:
        url = engine.url
        where = {"server.address": url.host, "server.port": url.port, "db.namespace": url.database}
        known = {name: value for name, value in where.items() if value is not None}

        def begin(
            connection: Connection, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool
        ) -> None:
            operation = statement.split(maxsplit=1)[0].upper()
            attributes = {
                "db.system.name": _system(connection),
                "db.operation.name": operation,
                "db.query.text": statement,  # with placeholders: values go beside it, and not into the span
                **known,
            }
            span = self._tracer.start_span(operation, kind=SpanKind.CLIENT, attributes=attributes)
            context.cupo_span = span

        def end(_c: Connection, _cursor: Any, _statement: str, _p: Any, context: Any, _many: bool) -> None:
            context.cupo_span.end()

        event.listen(engine, "before_cursor_execute", begin)
        event.listen(engine, "after_cursor_execute", end)
        event.listen(engine, "handle_error", _end_with_error)

    def outgoing_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        return headers

    def stop(self) -> None:
        stopping = threading.Thread(target=self._provider.shutdown, daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)


def _system(connection: Connection) -> str:
    return "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name


def _end_with_error(context: ExceptionContext) -> None:
    span = getattr(context.execution_context, "cupo_span", None)
    if span is None:  # an error of connecting, which no statement made
        return
    error = context.sqlalchemy_exception
    number = number_of(error) if isinstance(error, DBAPIError) else None
    if number is not None:
        span.set_attribute("db.response.status_code", str(number))
    span.set_attribute("error.type", type(context.original_exception).__name__)
    span.set_status(Status(StatusCode.ERROR))
    span.end()
