"""Looks for deliveries that wait for nobody, which no transaction of ours leaves behind."""

import logging
from dataclasses import dataclass

from app.db import Database, Tx
from app.webhooks import change_queries, outbox_queries
from app.webhooks.claim_queries import lock_endpoints
from app.webhooks.settle_queries import promote_if_waiting

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Place:
    """How far a walk over all that waits has come."""

    endpoint_id: int = 0
    after_id: int = 0


def promote_stragglers(db: Database, place: Place) -> Place:
    """Promote those of the next 500 that wait without a head; where to go on.

    A pass costs the same however much waits. Raises Unavailable (503).
    """
    users, next_place = db.transact(_look_at_some, place, read_only=True)
    promoted = sum(db.transact(_promote, place.endpoint_id, user_id) for user_id in users)
    if promoted:
        log.error("%d deliveries waited for nobody and were promoted", promoted)
    return next_place


def _look_at_some(tx: Tx, place: Place) -> tuple[list[int], Place]:
    rows = outbox_queries.waiting_slice(tx, place.endpoint_id, place.after_id, MOST_AT_ONCE)
    users = sorted({user_id for _, user_id, has_head in rows if not has_head})
    if rows:
        return users, Place(place.endpoint_id, rows[-1][0])
    later = (one for one in change_queries.endpoint_ids(tx) if one > place.endpoint_id)
    return users, Place(next(later, 0))


def _promote(tx: Tx, endpoint_id: int, user_id: int) -> int:
    lock_endpoints(tx, [endpoint_id])
    first = change_queries.first_without_head(tx, endpoint_id, user_id)
    return 0 if first is None else promote_if_waiting(tx, [first])
