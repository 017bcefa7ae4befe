"""How much one worker process sends, and what a claim costs however much waits."""

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, bindparam, create_engine, event, text

from app.db import Database, Tx
from app.migrations import migrate
from app.settings import Settings, load_settings
from app.webhooks.claim import claim
from tests.processes import processor_seconds
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY
from tests.webhooks.recording import Recorder, running_worker
from tests.webhooks.rows import numbers, put_delivery, put_endpoint, put_events, run

pytestmark = [pytest.mark.locking, pytest.mark.timeout(300)]

LEAST_PER_SECOND = 300
ENDPOINTS = 20
log = logging.getLogger(__name__)


def test_one_worker_has_processor_time_for_300_deliveries_a_second(
    own: Settings, engine: Engine, recorder: Recorder, folder: Path
) -> None:
    """Its own time is what counts: server, receiver and tests share the machine with it."""
    for number in range(ENDPOINTS):
        put_endpoint(engine, recorder.url(f"/{number}"))
    with running_worker(own, folder) as worker:
        put_events(engine, 5)
        recorder.wait_for(5 * ENDPOINTS)  # it has started, and made its statements
        began_at, used = time.monotonic(), processor_seconds(worker.pid)
        put_events(engine, 100, first_user=1000)
        recorder.wait_for(105 * ENDPOINTS)
        used = processor_seconds(worker.pid) - used
        seconds = time.monotonic() - began_at
    log.info("%.0f a second, %.2f ms of processor time each", 2000 / seconds, used / 2)
    assert 2000 / used >= LEAST_PER_SECOND


@pytest.fixture
def crowded(server: Server) -> Iterator[Settings]:
    """Without the indexes that no claim reads, so that a million rows are made in no time."""
    with fresh_database(server, "cupo_test_crowded") as url:
        settings = load_settings(database_url=url, root_key=ROOT_KEY, database_pool_size=1)
        migrate(settings)
        engine = create_engine(settings.url, isolation_level="AUTOCOMMIT")
        for index in ("tell_once", "one_head", "by_user", "by_state", "by_end"):
            run(engine, f"ALTER TABLE webhook_deliveries DROP INDEX webhook_deliveries_{index}")
        engine.dispose()
        yield settings


def put_waiting_of_nobody(engine: Engine, endpoint_id: int, how_many: int, first: int) -> None:
    """Deliveries that are due; their events are in no trail, which a claim does not mind."""
    run(
        engine,
        "INSERT INTO webhook_deliveries"  # noqa: S608 - our own numbers
        " (endpoint_id, event_id, user_id, head_user_id, type, state, created_at, due_at) SELECT :endpoint,"
        " :first + n, :first + n, :first + n, 'device.registered', 'pending',"
        f" UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM {numbers(how_many)}",
        endpoint=endpoint_id,
        first=first,
    )


def rows_read(tx: Tx) -> int:
    """By this session so far."""
    found = tx.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(value) for _, value in found)


def cost_of_a_claim(db: Database) -> tuple[int, float]:
    """Rows read, and milliseconds: of 20 claims each the least."""
    reads, times = [], []
    for number in range(20):
        before, began_at = db.transact(rows_read), time.monotonic()
        claimed = claim(db, f"token-{number}", 16, 2)
        times.append((time.monotonic() - began_at) * 1000)
        reads.append(db.transact(rows_read) - before)
        assert len(claimed) == 16
        db.transact(undo, [one.id for one in claimed])
    return min(reads), min(times)


def undo(tx: Tx, ids: list[int]) -> None:
    """As if nothing had been claimed; a delivery without an event would not be given back."""
    columns = "state = 'pending', due_at = created_at, claimed_by = NULL, claimed_until = NULL, attempts = 0"
    tx.execute(
        text(f"UPDATE webhook_deliveries SET {columns} WHERE id IN :ids").bindparams(  # noqa: S608 - our own words
            bindparam("ids", expanding=True)
        ),
        {"ids": ids},
    )


def test_a_claim_costs_the_same_whether_a_thousand_wait_or_a_million(crowded: Settings) -> None:
    engine = create_engine(crowded.url, isolation_level="AUTOCOMMIT")
    endpoints = [put_endpoint(engine) for _ in range(ENDPOINTS)]
    for endpoint in endpoints[1:]:
        put_delivery(engine, endpoint, 1)
    db = Database(crowded)
    put_waiting_of_nobody(engine, endpoints[0], 1_000, 10**7)
    few = cost_of_a_claim(db)
    put_waiting_of_nobody(engine, endpoints[0], 999_000, 2 * 10**7)
    many = cost_of_a_claim(db)
    db.close()
    engine.dispose()
    log.info("rows read: %d, then %d; ms: %.1f, then %.1f", few[0], many[0], few[1], many[1])
    assert many[0] <= 1.2 * few[0]


def test_a_claim_names_its_indexes(own: Settings, engine: Engine) -> None:
    """What waits is found by one index, what is claimed by another, and all else by its number."""
    for number in range(ENDPOINTS):
        endpoint = put_endpoint(engine)
        for user in range(10):
            put_delivery(engine, endpoint, 100 * number + user + 1)
    db = Database(own)
    sent: list[str] = []

    def note(_connection: object, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        sent.append(cursor.mogrify(statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert len(claim(db, "a-token", 16, 2)) == 16
    finally:
        event.remove(Engine, "before_cursor_execute", note)
        db.close()
    used: set[str] = set()
    for statement in sent:
        if "webhook_deliveries" in statement:
            used |= indexes_of(engine, statement)
    assert used == {"webhook_deliveries_by_due", "webhook_deliveries_by_claim", "PRIMARY"}


def indexes_of(engine: Engine, statement: str) -> set[str]:
    """By which the server would reach `webhook_deliveries` for it; «none» where it would read the table."""
    with engine.connect() as connection:
        version = str(connection.exec_driver_sql("SELECT VERSION()").scalar_one())
        explain = "EXPLAIN " if "MariaDB" in version else "EXPLAIN FORMAT=TRADITIONAL "
        rows = connection.exec_driver_sql(explain + re.sub("%", "%%", statement)).mappings().all()
    return {row["key"] or "none" for row in rows if row["table"] == "webhook_deliveries"}
