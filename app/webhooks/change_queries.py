"""The statements by which people change what becomes of a delivery."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, exists, select, update

from app.db import Tx
from app.dialects import utc_now
from app.tables import webhook_deliveries as deliveries
from app.tables import webhook_endpoints as endpoints
from app.webhooks.settle_queries import END

_state = deliveries.c.state
UNCLAIMED = ("waiting", "pending", "retrying")


def hasten_if_retrying(tx: Tx, delivery_id: int) -> bool:
    """Have it due now. Its rival is a claim, after which it is under way anyhow."""
    retrying = update(deliveries).where(deliveries.c.id == delivery_id, _state == "retrying")
    return tx.execute(retrying.values(due_at=utc_now())).rowcount == 1


def reopen_if_discarded(tx: Tx, delivery_id: int) -> bool:
    """Put it in line again, with all its attempts before it. A test is not: it has no line to stand in."""
    discarded = update(deliveries).where(
        deliveries.c.id == delivery_id, _state == "discarded", deliveries.c.user_id.is_not(None)
    )
    return tx.execute(discarded.values(state="waiting", attempts=0, ended_at=None)).rowcount == 1


def discard_if_unclaimed(tx: Tx, ids: Sequence[int]) -> int:
    """End what waits: how many. What is under way is not called back; its worker settles it."""
    unclaimed = update(deliveries).where(deliveries.c.id.in_(ids), _state.in_(UNCLAIMED))
    return tx.execute(unclaimed.values(state="discarded", **END)).rowcount


_head = deliveries.alias("head")


def first_without_head(tx: Tx, endpoint_id: int, user_id: int) -> int | None:
    """The first that waits of the user at the endpoint, if it waits for nobody."""
    has_head = exists().where(_head.c.endpoint_id == endpoint_id, _head.c.head_user_id == user_id)
    query = select(deliveries.c.id).where(
        deliveries.c.user_id == user_id,
        deliveries.c.endpoint_id == endpoint_id,
        _state == "waiting",
        ~has_head,
    )
    found: int | None = tx.execute(query.order_by(deliveries.c.id).limit(1)).scalar()
    return found


def endpoint_and_user_of(tx: Tx, delivery_id: int) -> Any:
    """Both, which never change; None if there is no such delivery."""
    query = select(deliveries.c.endpoint_id, deliveries.c.user_id).where(deliveries.c.id == delivery_id)
    return tx.execute(query).one_or_none()


def deleted_endpoints(tx: Tx) -> list[int]:
    return list(tx.execute(select(endpoints.c.id).where(endpoints.c.deleted_at.is_not(None))).scalars())


def unclaimed_of_endpoint(tx: Tx, endpoint_id: int, limit: int) -> list[int]:
    """Open deliveries of the endpoint that nobody is sending. Reads `webhook_deliveries_by_state`."""
    query = (
        select(deliveries.c.id)
        .with_hint(deliveries, "FORCE INDEX (webhook_deliveries_by_state)", "mysql")
        .where(deliveries.c.endpoint_id == endpoint_id, _state.in_(UNCLAIMED))
    )
    return list(tx.execute(query.order_by(_state, deliveries.c.id).limit(limit)).scalars())


def delete_emptied_endpoints(tx: Tx) -> int:
    """Delete the rows of deleted endpoints that nothing refers to any more: how many."""
    used = exists().where(deliveries.c.endpoint_id == endpoints.c.id)
    return tx.execute(delete(endpoints).where(endpoints.c.deleted_at.is_not(None), ~used)).rowcount


def endpoint_ids(tx: Tx) -> list[int]:
    return list(tx.execute(select(endpoints.c.id).order_by(endpoints.c.id)).scalars())
