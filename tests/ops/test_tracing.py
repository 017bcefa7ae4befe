"""Traces: a request's span, its transactions' and their statements', or nothing at all."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app import tracing
from app.spans import OpenTelemetry
from loadtest.ports import LOOPBACK, free_port
from tests.proxy import Fate, proxied
from tests.services import running_service

NewUser = Callable[[], int]
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"


class Collector:
    """Receives traces by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                export = ExportTraceServiceRequest.FromString(body)
                for resource in export.resource_spans:
                    for scope in resource.scope_spans:
                        collector.spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self.server.server_port}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    yield collector
    collector.server.shutdown()
    thread.join()
    collector.server.server_close()


def attributes(span: Span) -> dict[str, str | int | float]:
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value")
        for one in span.attributes
    }


@pytest.mark.locking
def test_a_call_is_a_request_of_transactions_of_statements(
    database_url: str,
    new_user: NewUser,
    folder: Path,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    user = new_user()
    parent = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
    with (
        proxied(database_url) as (proxy, url),
        running_service(url, folder, traces="on") as service,
        service.client() as api,
    ):
        api.post(f"/v1/users/{user}/devices", json={"device_id": "first"})
        fates = iter([Fate.CUT_BEFORE])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if "INSERT INTO devices" in sql else Fate.PASS
        answer = api.post(
            f"/v1/users/{user}/devices", json={"device_id": "second", "name": "a value"}, headers=parent
        )
        assert answer.status_code == 201
    # Whatever was still to be sent was sent before the service ended.
    spans = [span for span in collector.spans if span.trace_id.hex() == TRACE_ID]
    (request,) = [span for span in spans if span.kind == Span.SPAN_KIND_SERVER]
    assert request.name == "POST /v1/users/{user_id}/devices"
    assert request.parent_span_id.hex() == PARENT_ID
    told = attributes(request)
    assert (told["http.request.method"], told["http.response.status_code"]) == ("POST", 201)
    assert told["http.route"] == "/v1/users/{user_id}/devices"
    assert told["cupo.attempts"] == 2
    (transaction,) = [span for span in spans if span.parent_span_id == request.span_id]
    assert transaction.name == "register"
    assert (attributes(transaction)["cupo.attempts"], attributes(transaction)["cupo.outcome"]) == (
        2,
        "committed",
    )
    statements = [span for span in spans if span.parent_span_id == transaction.span_id]
    assert {span.kind for span in statements} == {Span.SPAN_KIND_CLIENT}
    (failed,) = [span for span in statements if span.status.code == 2]
    assert failed.name == "INSERT"
    assert attributes(failed)["db.response.status_code"] == "2013"
    assert {attributes(span)["db.system.name"] for span in statements} <= {"mysql", "mariadb"}
    texts = [str(attributes(span)["db.query.text"]) for span in statements]
    assert any("FOR UPDATE" in text for text in texts)
    assert len(texts) == 2 * 4 - 1  # lock, state, device, event; the first run did not get to the last
    for text in texts:
        assert "a value" not in text
        assert str(user) not in text


@pytest.mark.parametrize("endpoint", ["refused", "silent"])
def test_a_collector_that_is_not_there_hurts_nobody(
    database_url: str, new_user: NewUser, folder: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:  # takes connections, and never answers
        port = silent.getsockname()[1] if endpoint == "silent" else free_port()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{LOOPBACK}:{port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with (
            running_service(database_url, folder, traces="on") as service,
            service.client() as api,
        ):
            for _ in range(20):
                answer = api.post(f"/v1/users/{new_user()}/devices", json={})
                assert answer.status_code == 201
                assert answer.elapsed.total_seconds() < 2
            service.process.terminate()
            assert service.process.wait(10) == 0


def said_by(program: str) -> str:
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return ended.stdout


def test_off_imports_nothing_of_it() -> None:
    """Beside its interface, which FastAPI imports by itself where it is installed."""
    program = (
        "import sys, app.cli, app.main; from app.settings import load_settings;"
        "app.main.create_app(load_settings(root_key='a key of sixteen characters'));"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk') or name == 'app.spans'])"
    )
    assert said_by(program) == "[]\n"


def test_on_without_what_it_needs_is_told_in_one_line() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from app.settings import BadSettings, load_settings
load_settings()
try:
    load_settings(traces="on")
except BadSettings as bad:
    print(bad)
"""
    said = said_by(program)
    assert said.startswith("CUPO_TRACES: needs what is not installed: pip install 'cupo[otel]'")
    assert said.count("\n") == 1


def test_what_goes_out_carries_the_current_span(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracing.outgoing_headers() == {}
    exporter = InMemorySpanExporter()
    spans = OpenTelemetry(exporter)
    monkeypatch.setattr(tracing, "_spans", spans)
    scope = {"method": "GET", "path": "/", "scheme": "http"}
    headers = [(b"traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01".encode())]
    with tracing.request_span({**scope, "headers": headers}):
        sent = tracing.outgoing_headers()
    tracing.stop()
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert sent == {"traceparent": f"00-{TRACE_ID}-{span.context.span_id:016x}-01"}
