"""The statements that claim deliveries, and the lock that whatever changes deliveries takes."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, bindparam, case, func, null, select, union_all, update

from app.db import Tx
from app.dialects import seconds_from_now, utc_now
from app.tables import events
from app.tables import webhook_deliveries as deliveries
from app.tables import webhook_endpoints as endpoints
from app.webhooks.deliveries import Delivery, Endpoint, Occurrence
from app.webhooks.fairness import Candidate

_state = deliveries.c.state


def lock_endpoints(tx: Tx, endpoint_ids: Iterable[int], *, serving: bool = False) -> None:
    """Take the locks of these endpoints' deliveries, held until `tx` ends, in ascending order.

    By a write, so that two nodes of a cluster conflict as well (rule 12 of the lock protocol). `serving`
    notes the time, by which the fair order goes.
    """
    values: dict[str, Any] = {"version": endpoints.c.version + 1}
    if serving:
        values["last_served_at"] = utc_now()
    tx.execute(update(endpoints).where(endpoints.c.id.in_(sorted(endpoint_ids))).values(values))


_served = (
    select(endpoints.c.id, endpoints.c.last_served_at)
    .where(endpoints.c.disabled_at.is_(None), endpoints.c.deleted_at.is_(None))
    .order_by(endpoints.c.id)
)
_in_flight = (
    select(deliveries.c.endpoint_id, func.count())
    .with_hint(deliveries, "FORCE INDEX (webhook_deliveries_by_claim)", "mysql")
    .where(deliveries.c.claimed_until.is_not(None))
    .group_by(deliveries.c.endpoint_id)
)


def candidates(tx: Tx) -> list[Candidate]:
    """Endpoints that are served and have something due, and how much of each is claimed.

    However much waits, reads one entry of `webhook_deliveries_by_due` for each endpoint, and of
    `webhook_deliveries_by_claim` what is claimed.
    """
    served = {row.id: row.last_served_at for row in tx.execute(_served)}
    due = _due(tx, dict.fromkeys(served, 1))
    claimed = in_flight(tx) if due else {}
    return [
        Candidate(row.endpoint_id, claimed.get(row.endpoint_id, 0), served[row.endpoint_id], row.due_at)
        for row in due
    ]


def in_flight(tx: Tx) -> dict[int, int]:
    """Claimed deliveries of each endpoint that has any; exact for those whose lock is held."""
    return {row[0]: row[1] for row in tx.execute(_in_flight)}


def due_deliveries(tx: Tx, numbers: Mapping[int, int]) -> list[int]:
    """Of each endpoint as many as said, those that have been due for longest; of one not served, none."""
    return [row.id for row in _due(tx, numbers)]


def _due(tx: Tx, numbers: Mapping[int, int]) -> Sequence[Any]:
    if not numbers:
        return []
    values: dict[str, int] = {}
    for place, (endpoint_id, number) in enumerate(numbers.items()):
        values |= {f"endpoint_{place}": endpoint_id, f"number_{place}": number}
    return tx.execute(_first_due(len(numbers)), values).all()


@functools.cache
def _first_due(places: int) -> Any:
    """For so many endpoints. Made once: SQLAlchemy takes longer to make it than the database to answer it."""
    parts = [_first_due_at(place) for place in range(places)]
    return union_all(*parts) if places > 1 else parts[0]


def _first_due_at(place: int) -> Select[Any]:
    """One endpoint by its number: for a join with all, or a GROUP BY, the servers may read all that waits.

    The index is named, since the statistics lag behind the rows of a queue.
    """
    served = select(endpoints.c.id).where(
        endpoints.c.id == bindparam(f"endpoint_{place}"),
        endpoints.c.disabled_at.is_(None),
        endpoints.c.deleted_at.is_(None),
    )
    first = (
        select(deliveries.c.id, deliveries.c.endpoint_id, deliveries.c.due_at)
        .with_hint(deliveries, "FORCE INDEX (webhook_deliveries_by_due)", "mysql")
        .where(deliveries.c.endpoint_id == served.scalar_subquery(), deliveries.c.due_at <= utc_now())
        .order_by(deliveries.c.due_at, deliveries.c.id)
        .limit(bindparam(f"number_{place}"))
        .subquery(f"due_{place}")
    )
    return select(first.c.id, first.c.endpoint_id, first.c.due_at)


_claim = (
    update(deliveries)
    .where(
        deliveries.c.id.in_(bindparam("ids", expanding=True)),
        _state.in_(("pending", "retrying")),
        deliveries.c.due_at <= utc_now(),
    )
    .values(
        state="claimed",
        due_at=None,
        claimed_by=bindparam("token"),
        claimed_until=seconds_from_now(bindparam("lease")),
        attempts=deliveries.c.attempts + 1,
        last_attempt_at=utc_now(),
    )
)


def claim_if_due(tx: Tx, ids: Sequence[int], token: str, lease_seconds: float) -> int:
    """Claim those that are due and unclaimed: how many. Its rival is another claim, which finds fewer."""
    return tx.execute(_claim, {"ids": ids, "token": token, "lease": lease_seconds}).rowcount


_secret_of_before = case(
    (endpoints.c.previous_secret_until > utc_now(), endpoints.c.previous_secret), else_=null()
)
_claimed = (
    select(
        deliveries.c.id,
        deliveries.c.endpoint_id,
        deliveries.c.type,
        deliveries.c.created_at,
        deliveries.c.attempts,
        endpoints.c.url,
        endpoints.c.secret,
        _secret_of_before.label("previous_secret"),
        events.c.id.label("event_id"),
        events.c.user_id,
        events.c.occurred_at,
        events.c.device_id,
        events.c.actor,
        events.c.reason,
        events.c.request_id,
        events.c.data,
        utc_now().label("now"),
    )
    .join_from(deliveries, endpoints, endpoints.c.id == deliveries.c.endpoint_id)
    .outerjoin(events, events.c.id == deliveries.c.event_id)
    .where(
        deliveries.c.id.in_(bindparam("ids", expanding=True)),
        _state == "claimed",
        deliveries.c.claimed_by == bindparam("token"),
    )
    .order_by(deliveries.c.id)
)


def claimed_deliveries(tx: Tx, ids: Sequence[int], token: str) -> list[Delivery]:
    """Those of `ids` that this claim holds, with all that is needed to send them."""
    return [_delivery(row, token) for row in tx.execute(_claimed, {"ids": ids, "token": token})]


def _delivery(row: Any, token: str) -> Delivery:
    both = (row.secret, row.previous_secret)
    event = None
    if row.event_id is not None:
        event = Occurrence(
            row.event_id, row.user_id, row.device_id, row.actor, row.reason, row.request_id, row.data
        )
    at = row.created_at if event is None else row.occurred_at
    return Delivery(
        id=row.id,
        token=token,
        endpoint=Endpoint(row.endpoint_id, row.url, tuple(one for one in both if one is not None)),
        type=row.type,
        at=at,
        attempts=row.attempts,
        event=event,
        age_seconds=(row.now - at).total_seconds(),
    )
