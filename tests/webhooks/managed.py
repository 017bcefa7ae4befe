"""Endpoints made over HTTP, and deliveries put beside them by hand."""

import datetime
import itertools
from typing import Any

import httpx
from sqlalchemy import Connection, Engine, text

HOME = "/v1/webhook-endpoints"
DELIVERIES = "/v1/webhook-deliveries"
URL = "https://hooks.example.com/cupo"
BY_HAND = "put there by hand"


def make(api: httpx.Client, **fields: Any) -> Any:
    answer = api.post(HOME, json={"url": URL} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def at(endpoint: Any, call: str = "") -> str:
    return f"{HOME}/{endpoint['id']}{call}"


def without_secret(endpoint: Any) -> Any:
    return {name: value for name, value in endpoint.items() if name != "secret"}


users = itertools.count(2**50)


def put_event(connection: Connection, user: int) -> int:
    """An event that was fanned out long ago: its id."""
    query = text(
        "INSERT INTO events (user_id, occurred_at, type, actor, request_id, data, fanned_out)"
        " VALUES (:user, UTC_TIMESTAMP(6), 'device.revoked', 'tests', :mark, '{}', 1)"
    )
    return int(connection.execute(query, {"user": user, "mark": BY_HAND}).lastrowid)


def put_delivery(auditor: Engine, endpoint: Any, state: str, **fields: Any) -> str:
    """A row as the worker leaves it: its id."""
    user = fields.pop("user_id", None) or next(users)
    with auditor.connect() as connection:
        fields.setdefault("event_id", put_event(connection, user))
    row: dict[str, Any] = {
        "endpoint_id": int(endpoint["id"]),
        "user_id": user,
        "head_user_id": user if state in {"pending", "claimed", "retrying"} else None,
        "type": "device.revoked",
        "state": state,
        "created_at": datetime.datetime(2026, 11, 30, 9, 31),  # noqa: DTZ001 - as the table has it
        "due_at": datetime.datetime(2126, 11, 30) if state in {"pending", "retrying"} else None,  # noqa: DTZ001 - likewise
        "claimed_by": "somebody" if state == "claimed" else None,
        "claimed_until": datetime.datetime(2126, 11, 30) if state == "claimed" else None,  # noqa: DTZ001 - likewise
        "ended_at": datetime.datetime(2026, 11, 30) if state in {"delivered", "discarded"} else None,  # noqa: DTZ001 - likewise
        "attempts": 0 if state in {"waiting", "pending"} else 10,
    } | fields
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    with auditor.connect() as connection:
        query = text(f"INSERT INTO webhook_deliveries ({names}) VALUES ({values})")  # noqa: S608 - our own names
        return str(connection.execute(query, row).lastrowid)


def states(auditor: Engine, *ids: str) -> list[str]:
    query = text("SELECT state FROM webhook_deliveries WHERE id = :id")
    with auditor.connect() as connection:
        return [connection.execute(query, {"id": one}).scalar_one() for one in ids]


# Endpoints.
