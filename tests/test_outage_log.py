"""What the log has of a database that is away: its beginning, its end, and no line for each try between."""

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from app.db import Database, Tx
from app.errors import DatabaseUnavailable
from app.settings import Settings, load_settings
from app.worker import work_until
from tests.databases import migrated_database
from tests.proxy import Fate, Proxy, proxied
from tests.servers import Server
from tests.services import ROOT_KEY

pytestmark = pytest.mark.locking

AWAY_SECONDS = 5
BACK_WITHIN_SECONDS = 20


@pytest.fixture
def away(server: Server) -> Iterator[tuple[Proxy, Settings]]:
    """A database of its own behind a proxy, and impatient settings."""
    with migrated_database(server, "cupo_test_outage_log") as direct, proxied(direct) as (proxy, url):
        yield (
            proxy,
            load_settings(
                database_url=url,
                root_key=ROOT_KEY,
                lock_budget_seconds=2,
                slow_transaction_seconds=0.5,
                sweep_interval_seconds=0.1,
                audit_interval_seconds=0.5,
            ),
        )


def one(tx: Tx) -> int:
    return int(tx.execute(text("SELECT 1")).scalar_one())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("app")]


def wait_until(happened: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + BACK_WITHIN_SECONDS
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.05)


def test_a_worker_tells_of_each_duty_once_that_it_fails_and_once_that_it_goes_on(
    away: tuple[Proxy, Settings], caplog: pytest.LogCaptureFixture
) -> None:
    proxy, settings = away
    caplog.set_level(logging.INFO, logger="app")
    stop = threading.Event()
    proxy.fate = lambda _sql: Fate.CUT_BEFORE
    worker = threading.Thread(target=work_until, args=(stop, settings))
    worker.start()
    try:
        time.sleep(AWAY_SECONDS)
        of_the_outage = said(caplog)
        proxy.fate = lambda _sql: Fate.PASS
        wait_until(lambda: len(said(caplog)) >= len(of_the_outage) + 4)
    finally:
        stop.set()
        worker.join()
    begun, *failed = of_the_outage
    assert begun.startswith("The worker of Cupo ")
    assert "up to 16 deliveries at once, a sweep every 0.1 s, an audit of the limits every 0.5 s" in begun
    assert sorted(line.partition(":")[0] for line in failed) == [
        "Deliveries are left for later",
        "The limits could not be audited",
        "The outbox is left for later",
        "This pass is left out",
    ]
    for line in failed:
        assert ": Database unavailable: (2013, " in line, "why, and not what callers are told"
    *back, ended = said(caplog)[len(of_the_outage) :]
    assert sorted(line.partition(" again, after ")[0] for line in back) == [
        "Deliveries go on",
        "Sweeping",
        "The limits are audited",
        "The outbox is worked off",
    ]
    assert ended == "The worker has ended"


def test_a_call_that_is_given_up_has_two_lines(
    away: tuple[Proxy, Settings], caplog: pytest.LogCaptureFixture
) -> None:
    proxy, settings = away
    proxy.fate = lambda _sql: Fate.CUT_BEFORE
    caplog.set_level(logging.INFO, logger="app")
    db = Database(settings)
    with pytest.raises(DatabaseUnavailable):
        db.transact(one)
    db.close()
    first, last = caplog.records
    assert first.getMessage().startswith("Run 1 failed, the transaction runs again: (2013, ")
    assert last.getMessage().startswith("Gave up after run ")
    facts = vars(last)
    assert facts["attempts"] > 3
    assert facts["errno"] == 2013
    assert facts["seconds"] > settings.slow_transaction_seconds


def test_a_call_that_outlasts_the_outage_says_so(
    away: tuple[Proxy, Settings], caplog: pytest.LogCaptureFixture
) -> None:
    proxy, settings = away
    fates = iter([Fate.CUT_BEFORE] * 3)
    proxy.fate = lambda _sql: next(fates, Fate.PASS)
    caplog.set_level(logging.INFO, logger="app")
    db = Database(settings)
    assert db.transact(one) == 1
    db.close()
    first, last = said(caplog)[:2]
    assert first.startswith("Run 1 failed, the transaction runs again: (2013, ")
    assert last == "Run 4 went through, the database is back"
