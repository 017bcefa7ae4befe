"""The worker counts users above their limit, so that an alert can tell."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Engine

from app.audit import service
from app.audit.trail import Cause
from app.audit.watch import count_above_limit, watch_until
from app.db import Database
from app.etags import Precondition
from app.quotas.service import set_limit
from app.settings import Settings, load_settings
from tests.lifecycle.rows import put_devices
from tests.proxy import Fate, proxied
from tests.services import ROOT_KEY
from tests.use_cases import ORIGIN, register


def gauge(cause: str) -> float | None:
    return REGISTRY.get_sample_value("cupo_audit_users_above_limit", {"cause": cause})


class StopAfterOneLook(threading.Event):
    """Set as soon as somebody would wait for the next look; remembers for how long."""

    waited: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        self.waited = timeout
        self.set()
        return True


def test_users_above_their_limit_become_metrics_and_failures_a_line_in_the_log(
    own: Settings, own_db: Database, rows: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    before = time.time()
    put_devices(rows, 1, ["a", "b", "c"])
    put_devices(rows, 2, ["a", "b", "c"])
    for device in ("a", "b"):
        own_db.transact(register, 3, device)
    own_db.transact(set_limit, own, ORIGIN, 3, 1, Precondition())
    stop = StopAfterOneLook()
    with caplog.at_level(logging.ERROR, logger="app.audit.watch"):
        watch_until(stop, own_db, own)
    assert {cause.value: gauge(cause) for cause in Cause} == {
        "passed": 0,
        "untold": 2,
        "lowered": 1,
        "imported": 0,
    }
    looked_at = REGISTRY.get_sample_value("cupo_audit_last_success_timestamp_seconds")
    assert looked_at is not None
    assert before <= looked_at <= time.time()
    assert stop.waited == own.audit_interval_seconds
    assert "2 users are above their limit" in caplog.text


def test_it_ends_after_a_page_when_the_worker_stops(
    own: Settings, own_db: Database, rows: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ROWS_OF_A_PAGE", 1)
    for user in range(1, 9):
        put_devices(rows, user, ["a", "b", "c"])
    stop = threading.Event()
    assert count_above_limit(stop, own_db, own) == {Cause.UNTOLD: 8}
    stop.set()
    assert count_above_limit(stop, own_db, own) is None


def test_a_database_that_is_gone_costs_a_look_and_the_next_one_comes_sooner(
    own: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        proxy.fate = lambda _statement: Fate.CUT_BEFORE
        settings = load_settings(database_url=url, root_key=ROOT_KEY, lock_budget_seconds=2)
        db = Database(settings)
        stop = StopAfterOneLook()
        watch_until(stop, db, settings)
        db.close()
    assert stop.waited == 60
    assert "could not be audited" in caplog.text


def test_an_interval_of_0_turns_it_off(own: Settings, own_db: Database) -> None:
    stop = StopAfterOneLook()
    watch_until(stop, own_db, own.model_copy(update={"audit_interval_seconds": 0}))
    assert stop.waited is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_worker_looks_and_still_ends_at_once(number: signal.Signals, own: Settings, rows: Engine) -> None:
    put_devices(rows, 1, ["a", "b", "c", "d"])
    environment = os.environ | {
        "CUPO_DATABASE_URL": own.database_url.get_secret_value(),
        "CUPO_ROOT_KEY": ROOT_KEY,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "app", "worker"], env=environment, stderr=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stderr is not None
        for line in worker.stderr:
            if "1 users are above their limit" in line:
                break
        worker.send_signal(number)
        rest = worker.communicate(timeout=30)[1]
    assert worker.returncode == 0
    assert "Traceback" not in rest
