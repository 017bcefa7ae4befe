"""What the tests put into the tables of webhooks, or read there, behind the worker's back."""

import itertools
from typing import Any

from sqlalchemy import Engine, insert, text

from app.tables import webhook_deliveries, webhook_endpoints

KEY = b"k" * 32
_events = itertools.count(10**9)


def put_endpoint(engine: Engine, url: str = "https://receiver.example/", **columns: Any) -> int:
    """An endpoint that takes all events from long ago on; its id."""
    with engine.connect() as connection:
        long_ago = connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6) - INTERVAL 1 DAY").scalar_one()
        row = {"url": url, "secret": KEY, "revision": 1, "created_at": long_ago} | columns
        made = connection.execute(insert(webhook_endpoints), row)
        return int(made.inserted_primary_key[0])


def put_delivery(engine: Engine, endpoint_id: int, user_id: int, **columns: Any) -> int:
    """A delivery that is due, unless said otherwise; of an event that is in the trail only if it is given."""
    with engine.connect() as connection:
        now = connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6)").scalar_one()
        row = {
            "endpoint_id": endpoint_id,
            "event_id": next(_events),
            "user_id": user_id,
            "head_user_id": user_id,
            "type": "device.registered",
            "state": "pending",
            "created_at": now,
            "due_at": now,
        } | columns
        made = connection.execute(insert(webhook_deliveries), row)
        return int(made.inserted_primary_key[0])


def read(engine: Engine, query: str, **values: Any) -> list[Any]:
    """The rows, and of rows with one column their values."""
    with engine.connect() as connection:
        rows = connection.execute(text(query), values).all()
    return [row[0] if len(row) == 1 else tuple(row) for row in rows]


def run(engine: Engine, statement: str, **values: Any) -> int:
    """How many rows it found."""
    with engine.connect() as connection:
        return connection.execute(text(statement), values).rowcount
