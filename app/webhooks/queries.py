"""The statements about endpoints, and about deliveries as people look at them."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from sqlalchemy import CursorResult, case, func, insert, null, select, update

from app.db import Tx
from app.dialects import database_clock, seconds_from_now, utc_now
from app.tables import webhook_deliveries as deliveries
from app.tables import webhook_endpoints as endpoints
from app.texts import TEST_EVENT_TYPE
from app.webhooks.messages import webhook_id
from app.webhooks.schemas import WebhookDelivery, WebhookEndpoint

# All but the secrets, which only the worker and the rotation read.
_SHOWN = (
    endpoints.c.id,
    endpoints.c.url,
    endpoints.c.event_types,
    endpoints.c.description,
    endpoints.c.disabled_because,
    case(
        (endpoints.c.previous_secret_until > utc_now(), endpoints.c.previous_secret_until), else_=null()
    ).label("previous_secret_until"),
    endpoints.c.created_at,
    endpoints.c.revision,
)
_is_there = endpoints.c.deleted_at.is_(None)


def find_endpoint(tx: Tx, endpoint_id: int) -> WebhookEndpoint | None:
    row = tx.execute(select(*_SHOWN).where(endpoints.c.id == endpoint_id, _is_there)).one_or_none()
    return None if row is None else _endpoint(row)


def list_endpoints(tx: Tx, after_id: int, limit: int) -> list[WebhookEndpoint]:
    """At most `limit`, oldest first, behind `after_id`."""
    page = select(*_SHOWN).where(endpoints.c.id > after_id, _is_there).order_by(endpoints.c.id).limit(limit)
    return [_endpoint(row) for row in tx.execute(page)]


def _endpoint(row: Any) -> WebhookEndpoint:
    return WebhookEndpoint.model_construct(enabled=row.disabled_because is None, **row._mapping)  # noqa: SLF001 - SQLAlchemy's public name


def all_endpoint_ids(tx: Tx) -> list[int]:
    """Those of deleted ones as well."""
    return list(tx.execute(select(endpoints.c.id).order_by(endpoints.c.id)).scalars())


def count_endpoints(tx: Tx) -> int:
    return tx.execute(select(func.count()).select_from(endpoints).where(_is_there)).scalar_one()


def insert_endpoint(tx: Tx, key: bytes, fields: dict[str, Any]) -> int:
    """Its id."""
    row = fields | {"secret": key, "revision": 1, "created_at": database_clock(tx)}
    return _inserted_id(tx.execute(insert(endpoints).values(row)))


def _inserted_id(result: CursorResult[Any]) -> int:
    return int(result.inserted_primary_key[0])  # type: ignore[index] # None only where several rows are inserted


def has_key(tx: Tx, endpoint_id: int, key: bytes) -> bool:
    """Whether it is there and `key` is its secret."""
    query = select(endpoints.c.secret).where(endpoints.c.id == endpoint_id, _is_there)
    return bool(tx.execute(query).scalar() == key)


def update_endpoint(tx: Tx, endpoint_id: int, changes: dict[str, Any]) -> None:
    """Write the changes and count the revision. The caller holds the endpoint's lock."""
    changes = changes.copy()
    if "enabled" in changes:
        enabled = changes.pop("enabled")
        changes["disabled_at"] = null() if enabled else utc_now()
        changes["disabled_because"] = null() if enabled else "asked"
    _change(tx, endpoint_id, changes)


def rotate_secret(tx: Tx, endpoint_id: int, key: bytes, grace_seconds: int) -> None:
    """Have `key` be the secret, and the one before it good for so long. The caller holds the lock."""
    kept = {
        "previous_secret": endpoints.c.secret if grace_seconds else null(),
        "previous_secret_until": seconds_from_now(grace_seconds) if grace_seconds else null(),
    }
    # MySQL sets columns from left to right, and would else keep the new secret as the previous one.
    _change(tx, endpoint_id, kept | {"secret": key})


def mark_deleted(tx: Tx, endpoint_id: int) -> None:
    """It is served no longer, and nothing that could sign is kept. The caller holds the lock."""
    secrets = {"secret": b"", "previous_secret": null(), "previous_secret_until": null()}
    _change(tx, endpoint_id, {"deleted_at": utc_now(), **secrets})


def _change(tx: Tx, endpoint_id: int, changes: dict[str, Any]) -> None:
    values = [(endpoints.c[name], value) for name, value in changes.items()]
    change = update(endpoints).where(endpoints.c.id == endpoint_id, _is_there)
    tx.execute(change.ordered_values(*values, (endpoints.c.revision, endpoints.c.revision + 1)))


def insert_test(tx: Tx, endpoint_id: int) -> int:
    """A delivery of a test event, due at once: its id."""
    at = database_clock(tx)
    row = {
        "endpoint_id": endpoint_id,
        "type": TEST_EVENT_TYPE,
        "state": "pending",
        "created_at": at,
        "due_at": at,
    }
    return _inserted_id(tx.execute(insert(deliveries).values(row)))


def has_test(tx: Tx, test: WebhookDelivery) -> bool:
    """Whether the test is there. An id alone could be another's, given after the test was rolled back."""
    same = (deliveries.c.id == test.id, deliveries.c.endpoint_id == test.endpoint_id)
    query = select(deliveries.c.id).where(*same, deliveries.c.created_at == test.created_at)
    return tx.execute(query).one_or_none() is not None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which deliveries to list; None is any."""

    state: str | None = None
    endpoint_id: int | None = None
    event_id: int | None = None
    type: str | None = None


_COLUMNS = (
    deliveries.c.id,
    deliveries.c.endpoint_id,
    deliveries.c.event_id,
    deliveries.c.user_id,
    deliveries.c.type,
    deliveries.c.state,
    deliveries.c.attempts,
    deliveries.c.created_at,
    deliveries.c.due_at.label("next_attempt_at"),
    deliveries.c.last_attempt_at,
    deliveries.c.last_status,
    deliveries.c.last_duration_ms,
    deliveries.c.last_error,
    deliveries.c.last_answer,
)


def find_delivery(tx: Tx, delivery_id: int) -> WebhookDelivery | None:
    row = tx.execute(select(*_COLUMNS).where(deliveries.c.id == delivery_id)).one_or_none()
    return None if row is None else _delivery(row)


def list_deliveries(tx: Tx, wanted: Filter, before_id: int | None, limit: int) -> Sequence[WebhookDelivery]:
    """At most `limit`, newest first.

    A state alone is looked for at one endpoint after the other: what is rare among much else, as a rule those
    that were discarded, is found at its place in `webhook_deliveries_by_state`.
    """
    if wanted.state is None or wanted.endpoint_id is not None or wanted.event_id is not None:
        return _page(tx, wanted, before_id, limit)
    of_each = (replace(wanted, endpoint_id=endpoint_id) for endpoint_id in all_endpoint_ids(tx))
    found = (delivery for one in of_each for delivery in _page(tx, one, before_id, limit))
    return heapq.nlargest(limit, found, key=attrgetter("id"))


def _page(tx: Tx, wanted: Filter, before_id: int | None, limit: int) -> list[WebhookDelivery]:
    """Reads `webhook_deliveries_by_state` where endpoint and state are given, `webhook_deliveries_tell_once`
    where the event is, and else the primary key backwards until there are enough."""
    query = select(*_COLUMNS)
    for name in ("state", "endpoint_id", "event_id", "type"):
        if (value := getattr(wanted, name)) is not None:
            query = query.where(deliveries.c[name] == value)
    if before_id is not None:
        query = query.where(deliveries.c.id < before_id)
    return [_delivery(row) for row in tx.execute(query.order_by(deliveries.c.id.desc()).limit(limit))]


def _delivery(row: Any) -> WebhookDelivery:
    named = webhook_id(row.id, row.event_id, row.endpoint_id)
    return WebhookDelivery.model_construct(webhook_id=named, **row._mapping)  # noqa: SLF001 - SQLAlchemy's public name
