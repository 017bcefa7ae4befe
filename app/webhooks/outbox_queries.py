"""The statements of the outbox: from events to deliveries, and what is left of both."""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, exists, insert, select, update

from app.db import Tx
from app.dialects import database_clock, seconds_from_now
from app.tables import events
from app.tables import webhook_deliveries as deliveries
from app.tables import webhook_endpoints as endpoints

OPEN = ("waiting", "pending", "claimed", "retrying")


@dataclass(frozen=True, slots=True)
class Subscriber:
    """An endpoint that is served, and what it wants to be told: of all types where `event_types` is None."""

    id: int
    event_types: frozenset[str] | None
    created_at: datetime.datetime

    def wants(self, event: Any) -> bool:
        """Of this type, and from its own time."""
        of_type = self.event_types is None or event.type in self.event_types
        return of_type and event.occurred_at >= self.created_at


def subscribers(tx: Tx) -> list[Subscriber]:
    query = select(endpoints.c.id, endpoints.c.event_types, endpoints.c.created_at).where(
        endpoints.c.disabled_at.is_(None), endpoints.c.deleted_at.is_(None)
    )
    return [
        Subscriber(row.id, None if row.event_types is None else frozenset(row.event_types), row.created_at)
        for row in tx.execute(query.order_by(endpoints.c.id))
    ]


def ids_in_outbox(tx: Tx, limit: int) -> list[int]:
    """The oldest events that were not fanned out. Reads `events_by_outbox`, and waits for no transaction."""
    query = select(events.c.id).where(events.c.fanned_out == 0).order_by(events.c.id).limit(limit)
    return list(tx.execute(query).scalars())


_lock = (
    select(events.c.id, events.c.user_id, events.c.type, events.c.occurred_at)
    .with_hint(events, "FORCE INDEX (PRIMARY)", "mysql")
    .where(events.c.id.in_(bindparam("ids", expanding=True)), events.c.fanned_out == 0)
    .order_by(events.c.id)
    .with_for_update()
)
_take_out = update(events).where(events.c.id.in_(bindparam("ids", expanding=True))).values(fanned_out=True)


def lock_events(tx: Tx, ids: Sequence[int]) -> Sequence[Any]:
    """Those that are still in the outbox, locked, oldest first.

    The rival is another worker: it waits here, and then finds them taken out. By the primary key, since the
    outbox's index would have the lock wait for registrations that have not committed.
    """
    return tx.execute(_lock, {"ids": ids}).all()


def take_out(tx: Tx, ids: Sequence[int]) -> None:
    tx.execute(_take_out, {"ids": ids})


_heads = (
    select(deliveries.c.endpoint_id, deliveries.c.head_user_id)
    .with_hint(deliveries, "FORCE INDEX (webhook_deliveries_one_head)", "mysql")
    .where(
        deliveries.c.endpoint_id.in_(bindparam("endpoints", expanding=True)),
        deliveries.c.head_user_id.in_(bindparam("users", expanding=True)),
    )
)


def heads(tx: Tx, endpoint_ids: Iterable[int], user_ids: Iterable[int]) -> set[tuple[int, int]]:
    """Pairs of endpoint and user that have an open delivery, behind which others stand."""
    found = tx.execute(_heads, {"endpoints": sorted(endpoint_ids), "users": sorted(user_ids)})
    return {(row.endpoint_id, row.head_user_id) for row in found}


def insert_deliveries(tx: Tx, pairs: Sequence[tuple[int, Any, bool]]) -> None:
    """A delivery for each endpoint, event, and whether it is the head of its user's.

    The driver makes one statement of them, which it does for plain values only.
    """
    at = database_clock(tx)
    rows = [
        {
            "endpoint_id": endpoint_id,
            "event_id": event.id,
            "user_id": event.user_id,
            "head_user_id": event.user_id if is_head else None,
            "type": event.type,
            "state": "pending" if is_head else "waiting",
            "created_at": at,
            "due_at": at if is_head else None,
        }
        for endpoint_id, event, is_head in pairs
    ]
    tx.execute(insert(deliveries), rows)


def oldest_undelivered_seconds(tx: Tx) -> float:
    """For how long the oldest event has waited for an endpoint that is served; 0 if none does."""
    oldest = oldest_undelivered(tx)
    return 0.0 if oldest is None else max(0.0, (database_clock(tx) - oldest).total_seconds())


def oldest_undelivered(tx: Tx) -> datetime.datetime | None:
    """Since when the oldest event waits for an endpoint that is served; None if none does.

    Reads one entry of an index for each endpoint and open state, however much waits.
    """
    first = select(events.c.occurred_at).where(events.c.fanned_out == 0).order_by(events.c.id).limit(1)
    found = [tx.execute(first).scalar()]
    oldest = [
        select(deliveries.c.created_at)
        .where(deliveries.c.endpoint_id == endpoints.c.id, deliveries.c.state == state)
        .order_by(deliveries.c.id)
        .limit(1)
        .scalar_subquery()
        for state in OPEN
    ]
    served = select(*oldest).where(endpoints.c.disabled_at.is_(None), endpoints.c.deleted_at.is_(None))
    for row in tx.execute(served):
        found += row
    return min((instant for instant in found if instant is not None), default=None)


def ended_deliveries(tx: Tx, older_than_seconds: int, limit: int) -> list[int]:
    """Those that ended longest ago, if that is longer ago than this."""
    query = select(deliveries.c.id).where(deliveries.c.ended_at < seconds_from_now(-older_than_seconds))
    return list(tx.execute(query.order_by(deliveries.c.ended_at).limit(limit)).scalars())


def delete_if_ended(tx: Tx, ids: Sequence[int], older_than_seconds: int) -> int:
    """Delete them, unless one was brought back meanwhile: how many."""
    ended = deliveries.c.ended_at < seconds_from_now(-older_than_seconds)
    return tx.execute(delete(deliveries).where(deliveries.c.id.in_(ids), ended)).rowcount


def endpoints_of_user(tx: Tx, user_id: int) -> list[int]:
    query = select(deliveries.c.endpoint_id).where(deliveries.c.user_id == user_id).distinct()
    return list(tx.execute(query).scalars())


def delete_of_user(tx: Tx, user_id: int, limit: int) -> int:
    """Delete deliveries of the user, but for those under way: how many. The endpoints are locked."""
    query = (
        select(deliveries.c.id)
        .with_hint(deliveries, "FORCE INDEX (webhook_deliveries_by_user)", "mysql")
        .where(deliveries.c.user_id == user_id, deliveries.c.state != "claimed")
    )
    ids = list(tx.execute(query.limit(limit)).scalars())
    if ids:
        tx.execute(delete(deliveries).where(deliveries.c.id.in_(ids), deliveries.c.state != "claimed"))
    return len(ids)


_head = deliveries.alias("head")


def waiting_slice(tx: Tx, endpoint_id: int, after_id: int, limit: int) -> list[tuple[int, int, bool]]:
    """The next that wait at the endpoint, by id: each with its user, and whether it has a head."""
    has_head = exists().where(
        _head.c.endpoint_id == endpoint_id, _head.c.head_user_id == deliveries.c.user_id
    )
    query = select(deliveries.c.id, deliveries.c.user_id, has_head.label("has_head")).where(
        deliveries.c.endpoint_id == endpoint_id, deliveries.c.state == "waiting", deliveries.c.id > after_id
    )
    rows = tx.execute(query.order_by(deliveries.c.id).limit(limit))
    return [(row.id, row.user_id, bool(row.has_head)) for row in rows]
