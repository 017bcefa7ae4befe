"""The statements that claim deliveries, and the lock that whatever changes deliveries takes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, bindparam, case, func, null, select, union_all, update

from app.db import Tx
from app.dialects import seconds_from_now, utc_now
from app.tables import events
from app.tables import webhook_deliveries as deliveries
from app.tables import webhook_endpoints as endpoints
from app.webhooks.deliveries import Delivery, Endpoint, Occurrence
from app.webhooks.fairness import Candidate

_state = deliveries.c.state
_is_served = and_(endpoints.c.disabled_at.is_(None), endpoints.c.deleted_at.is_(None))


def lock_endpoints(tx: Tx, endpoint_ids: Iterable[int], *, serving: bool = False) -> None:
    """Take the locks of these endpoints' deliveries, held until `tx` ends, in ascending order.

    By a write, so that two nodes of a cluster conflict as well (rule 12 of the lock protocol). `serving`
    notes the time, by which the fair order goes.
    """
    values: dict[str, Any] = {"version": endpoints.c.version + 1}
    if serving:
        values["last_served_at"] = utc_now()
    tx.execute(update(endpoints).where(endpoints.c.id.in_(sorted(endpoint_ids))).values(values))


_oldest_due = (
    select(deliveries.c.due_at)
    .where(deliveries.c.endpoint_id == endpoints.c.id, deliveries.c.due_at <= utc_now())
    .order_by(deliveries.c.due_at)
    .limit(1)
    .scalar_subquery()
)
_candidates = select(endpoints.c.id, endpoints.c.last_served_at, _oldest_due.label("oldest_due_at")).where(
    _is_served
)
_in_flight = (
    select(deliveries.c.endpoint_id, func.count())
    .where(deliveries.c.claimed_until.is_not(None))
    .group_by(deliveries.c.endpoint_id)
)


def candidates(tx: Tx, endpoint_ids: Iterable[int] | None = None) -> list[Candidate]:
    """Endpoints with something due, of these or of all, and how much of each is claimed.

    Reads one entry of `webhook_deliveries_by_due` for each endpoint, and of `webhook_deliveries_by_claim`
    what is claimed: however much waits.
    """
    found = _candidates if endpoint_ids is None else _candidates.where(endpoints.c.id.in_(list(endpoint_ids)))
    due = [row for row in tx.execute(found) if row.oldest_due_at is not None]
    in_flight = {row[0]: row[1] for row in tx.execute(_in_flight)} if due else {}
    return [Candidate(row.id, in_flight.get(row.id, 0), row.last_served_at, row.oldest_due_at) for row in due]


def due_deliveries(tx: Tx, numbers: Mapping[int, int]) -> list[int]:
    """Of each endpoint as many as said, those that have been due for longest."""
    if not numbers:
        return []
    parts = [
        select(
            select(deliveries.c.id)
            .where(deliveries.c.endpoint_id == endpoint_id, deliveries.c.due_at <= utc_now())
            .order_by(deliveries.c.due_at, deliveries.c.id)
            .limit(number)
            .subquery(f"due_{place}")
            .c.id
        )
        for place, (endpoint_id, number) in enumerate(numbers.items())
    ]
    return list(tx.execute(union_all(*parts) if len(parts) > 1 else parts[0]).scalars())


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
    return Delivery(
        id=row.id,
        token=token,
        endpoint=Endpoint(row.endpoint_id, row.url, tuple(one for one in both if one is not None)),
        type=row.type,
        at=row.created_at if event is None else row.occurred_at,
        attempts=row.attempts,
        event=event,
    )
