"""One process: what it cannot send in time it gives back, and what nobody wants any more is discarded."""

import logging
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from app.db import Database
from app.settings import Settings
from app.webhooks import worker
from app.webhooks.changes import discard_what_was_left
from app.webhooks.worker import Courier
from tests.webhooks.recording import Recorder
from tests.webhooks.rows import put_delivery, put_endpoint, read

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
