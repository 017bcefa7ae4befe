"""One process: what it cannot send in time it gives back, and what nobody wants any more is discarded."""

import logging
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY
from sqlalchemy import Engine

from app import tracing
from app.db import Database
from app.settings import Settings
from app.spans import OpenTelemetry
from app.webhooks import worker
from app.webhooks.changes import discard_what_was_left
from app.webhooks.fan_out import fan_out
from app.webhooks.worker import Courier, fan_out_until
from tests.webhooks.recording import Recorder
from tests.webhooks.rows import put_delivery, put_endpoint, put_events, read

pytestmark = [pytest.mark.locking, pytest.mark.usefixtures("own")]

STATES = "SELECT state, attempts FROM webhook_deliveries ORDER BY id"


@pytest.fixture
def courier(own: Settings, own_db: Database) -> Iterator[Courier]:
    made = Courier(own_db, own)
    yield made
    stop = threading.Event()
    stop.set()
    made.run_until(stop)


def pass_until_settled(courier: Courier, engine: Engine, recorder: Recorder) -> None:
    courier.run_once()

    def is_settled() -> bool:
        courier.run_once()
        return not read(engine, "SELECT id FROM webhook_deliveries WHERE state = 'claimed'")

    recorder.wait_until(is_settled)


def test_what_was_claimed_too_long_ago_is_given_back_and_not_sent(
    courier: Courier, engine: Engine, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause between claim and attempt: the lease might end before the attempt does."""
    put_delivery(engine, put_endpoint(engine, recorder.url("/")), 1)
    monkeypatch.setattr(worker, "MARGIN_SECONDS", -1)
    assert courier.run_once().claimed == 1
    recorder.wait_until(lambda: courier.run_once().claimed == 1)  # for it was given back
    assert recorder.arrivals == []


def test_a_fault_in_an_attempt_is_told_and_left_to_the_lease(
    courier: Courier,
    engine: Engine,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put_delivery(engine, put_endpoint(engine, recorder.url("/")), 1)

    def fail(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr(worker, "deliver", fail)
    with caplog.at_level(logging.ERROR):
        courier.run_once()
        recorder.wait_until(lambda: courier.run_once().claimed == 0 and bool(caplog.records))
    assert "failed by a fault of the worker" in caplog.text
    assert read(engine, STATES) == [("claimed", 1)]


def test_what_is_answered_is_settled_at_the_next_pass(
    courier: Courier, engine: Engine, recorder: Recorder
) -> None:
    for user in range(3):
        put_delivery(engine, put_endpoint(engine, recorder.url(f"/{user}")), 1)
    pass_until_settled(courier, engine, recorder)
    assert read(engine, STATES) == [("delivered", 1)] * 3


def test_what_a_deleted_endpoint_leaves_is_discarded(own_db: Database, engine: Engine) -> None:
    deleted, kept = put_endpoint(engine, deleted_at="2026-11-30 00:00:00"), put_endpoint(engine)
    put_delivery(engine, deleted, 1)
    put_delivery(engine, deleted, 1, state="waiting", head_user_id=None, due_at=None)
    put_delivery(engine, kept, 1)
    assert discard_what_was_left(own_db) == 2
    assert read(engine, STATES) == [("discarded", 0), ("discarded", 0), ("pending", 0)]


def counted() -> dict[str, float]:
    """The series that a pass may move."""
    names = [
        *(f"cupo_webhook_deliveries_total {outcome}" for outcome in ("succeeded", "failed", "given_up")),
        "cupo_webhook_attempt_duration_seconds_count",
        "cupo_outbox_lag_seconds_count",
        "cupo_outbox_lag_seconds_sum",
    ]
    found = {}
    for name in names:
        series, _, outcome = name.partition(" ")
        found[name] = REGISTRY.get_sample_value(series, {"outcome": outcome} if outcome else {}) or 0.0
    return found


def test_each_attempt_is_counted_by_what_came_of_it_and_the_lag_is_the_events(
    courier: Courier, own_db: Database, engine: Engine, recorder: Recorder
) -> None:
    put_endpoint(engine, recorder.url("/"))
    put_events(engine, 2)
    own_db.transact(fan_out)
    # No more than the last attempt is left to one, and any number to the other.
    closed = "http://127.0.0.1:1/"
    put_delivery(engine, put_endpoint(engine, closed), 3)
    put_delivery(engine, put_endpoint(engine, closed), 4, state="retrying", attempts=9)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE events SET occurred_at = occurred_at - INTERVAL 100 SECOND WHERE user_id <= 2"
        )
    before = counted()
    pass_until_settled(courier, engine, recorder)
    after = counted()
    moved = {name: after[name] - before[name] for name in before}
    lag_seconds = moved.pop("cupo_outbox_lag_seconds_sum")
    assert moved == {
        "cupo_webhook_deliveries_total succeeded": 2,
        "cupo_webhook_deliveries_total failed": 1,
        "cupo_webhook_deliveries_total given_up": 1,
        "cupo_webhook_attempt_duration_seconds_count": 4,
        "cupo_outbox_lag_seconds_count": 2,
    }
    assert 200 <= lag_seconds < 300


def test_the_age_of_the_oldest_undelivered_event_is_told_and_is_0_where_none_waits(
    courier: Courier, own_db: Database, engine: Engine, recorder: Recorder
) -> None:
    def told() -> float:
        stop = threading.Event()
        thread = threading.Thread(target=fan_out_until, args=(stop, own_db, courier))
        worker.metrics.OUTBOX_OLDEST_SECONDS.set(-1)  # type: ignore[attr-defined] # mypy: not exported from there
        thread.start()
        recorder.wait_until(lambda: REGISTRY.get_sample_value(name) != -1)
        stop.set()
        thread.join()
        return REGISTRY.get_sample_value(name) or 0.0

    name = "cupo_outbox_oldest_undelivered_age_seconds"
    assert told() == 0
    put_delivery(engine, put_endpoint(engine), 1, created_at="2021-01-01 00:00:00")
    assert told() > 4 * 365 * 86_400


def test_a_receiver_is_told_the_trace_of_the_attempt(
    courier: Courier, engine: Engine, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "_spans", OpenTelemetry(exporter))
    put_delivery(engine, put_endpoint(engine, recorder.url("/")), 1)
    pass_until_settled(courier, engine, recorder)
    tracing.stop()
    (attempt,) = [span for span in exporter.get_finished_spans() if span.name == "POST"]
    assert attempt.context
    assert attempt.attributes
    assert attempt.attributes["http.response.status_code"] == 200
    told = f"00-{attempt.context.trace_id:032x}-{attempt.context.span_id:016x}-"
    assert [str(arrival.traceparent)[:-2] for arrival in recorder.arrivals] == [told]
