"""What the tests put into the tables of webhooks, or read there, behind the worker's back."""

from typing import Any

from sqlalchemy import Engine, insert, text

from app.tables import events, webhook_deliveries, webhook_endpoints

KEY = b"k" * 32


def put_endpoint(engine: Engine, url: str = "https://receiver.example/", **columns: object) -> int:
    """An endpoint that takes all events from long ago on; its id."""
    with engine.connect() as connection:
        long_ago = connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6) - INTERVAL 1 DAY").scalar_one()
        row = {"url": url, "secret": KEY, "revision": 1, "created_at": long_ago} | columns
        made = connection.execute(insert(webhook_endpoints), row)
        return int(made.lastrowid)


def put_delivery(engine: Engine, endpoint_id: int, user_id: int | None, **columns: Any) -> int:
    """A delivery that is due, of an event of its own, unless said otherwise."""
    with engine.connect() as connection:
        now = connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6)").scalar_one()
        event = {
            "user_id": user_id or 1,
            "occurred_at": now,
            "type": "device.registered",
            "actor": "tests",
            "request_id": "r",
            "data": {},
            "fanned_out": True,
        }
        row = {
            "endpoint_id": endpoint_id,
            "event_id": connection.execute(insert(events), event).lastrowid,
            "user_id": user_id,
            "head_user_id": user_id,
            "type": "device.registered",
            "state": "pending",
            "created_at": now,
            "due_at": now,
        } | columns
        made = connection.execute(insert(webhook_deliveries), row)
        return int(made.lastrowid)


def read(engine: Engine, query: str, **values: Any) -> list[Any]:
    """The rows, and of rows with one column their values."""
    with engine.connect() as connection:
        rows = connection.execute(text(query), values).all()
    return [row[0] if len(row) == 1 else tuple(row) for row in rows]


def run(engine: Engine, statement: str, **values: Any) -> int:
    """How many rows it found."""
    with engine.connect() as connection:
        return connection.execute(text(statement), values).rowcount


_DIGITS = "(SELECT 0 AS n" + "".join(f" UNION ALL SELECT {digit}" for digit in range(1, 10)) + ")"


def numbers(how_many: int) -> str:
    """A table for a FROM clause, with one column `n`: 0 … how_many - 1."""
    digits = len(str(how_many - 1)) if how_many > 1 else 1
    total = " + ".join(f"d{place}.n * {10**place}" for place in range(digits))
    tables = ", ".join(f"{_DIGITS} d{place}" for place in range(digits))
    return f"(SELECT {total} AS n FROM {tables} WHERE {total} < {how_many}) numbers"  # noqa: S608 - our own numbers


def put_events(engine: Engine, how_many: int, first_user: int = 1, users: int | None = None) -> None:
    """Events in the outbox, in turn of `users` users, by default of as many as there are events."""
    run(
        engine,
        "INSERT INTO events (user_id, occurred_at, type, device_id, actor, request_id, data)"  # noqa: S608 - our own numbers
        " SELECT :first + n % :users, UTC_TIMESTAMP(6), 'device.registered', CONCAT('device-', n), 'tests',"
        f" 'r', '{{}}' FROM {numbers(how_many)} ORDER BY n",
        first=first_user,
        users=users or how_many,
    )


def put_waiting(engine: Engine, endpoint_id: int, how_many: int, first_user: int = 10**6) -> None:
    """Deliveries that are due, each of another user and of an event of its own."""
    put_events(engine, how_many, first_user)
    run(
        engine,
        "INSERT INTO webhook_deliveries"
        " (endpoint_id, event_id, user_id, head_user_id, type, state, created_at, due_at)"
        " SELECT :endpoint, id, user_id, user_id, type, 'pending', occurred_at, occurred_at FROM events"
        " WHERE user_id BETWEEN :first AND :last ORDER BY id",
        endpoint=endpoint_id,
        first=first_user,
        last=first_user + how_many - 1,
    )
    run(engine, "UPDATE events SET fanned_out = 1")
