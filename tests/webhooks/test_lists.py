"""What is rare is found at once among much else."""

import pytest
from sqlalchemy import Engine, text

from app.db import Database, Tx
from app.webhooks.queries import Filter, list_deliveries
from tests.webhooks.rows import numbers, put_delivery, put_endpoint, run

pytestmark = pytest.mark.usefixtures("own")

MANY = 10_000
# Three entries of each of the endpoints, and the endpoints themselves.
MOST_ROWS_READ = 40


def rows_read(tx: Tx) -> int:
    query = text("SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%'")
    return sum(int(row[1]) for row in tx.execute(query))


def listed_and_read(tx: Tx, wanted: Filter) -> tuple[list[int], int]:
    before = rows_read(tx)
    found = [delivery.id for delivery in list_deliveries(tx, wanted, None, 3)]
    return found, rows_read(tx) - before


def test_a_page_of_a_rare_state_costs_what_is_on_it(own_db: Database, engine: Engine) -> None:
    old, new = put_endpoint(engine), put_endpoint(engine)
    now = "UTC_TIMESTAMP(6)"
    ended = {"state": "discarded", "head_user_id": None, "due_at": None, "ended_at": "2026-11-30 09:31:00"}
    rare = [put_delivery(engine, endpoint, 42, **ended) for endpoint in (old, new)]
    for endpoint in (old, new):
        run(
            engine,
            "INSERT INTO webhook_deliveries"  # noqa: S608 - our own numbers
            " (endpoint_id, event_id, user_id, type, state, created_at, ended_at, attempts)"
            f" SELECT :endpoint, 1000000 + n, 43, 'quota.changed', 'delivered', {now}, {now}, 1"
            f" FROM {numbers(MANY)}",
            endpoint=endpoint,
        )
    for wanted in (Filter(state="discarded"), Filter(state="discarded", type="device.registered")):
        found, read = own_db.transact(listed_and_read, wanted)
        assert found == sorted(rare, reverse=True)
        assert read <= MOST_ROWS_READ
    assert own_db.transact(listed_and_read, Filter(state="discarded", endpoint_id=new))[0] == rare[1:]
    newest, read = own_db.transact(listed_and_read, Filter())
    assert len(newest) == 3
    assert read <= MOST_ROWS_READ
