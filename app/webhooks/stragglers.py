"""Looks for deliveries that wait for nobody, which no transaction of ours leaves behind."""

import logging

from app.db import Database, Tx
from app.webhooks import change_queries, outbox_queries
from app.webhooks.change_queries import first_without_head
from app.webhooks.claim_queries import lock_endpoints
from app.webhooks.settle_queries import promote_if_waiting

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500


class Stragglers:
    """A walk over what waits, a slice at a time, so that a pass costs the same however much does."""

    def __init__(self) -> None:
        self._endpoint_id = 0
        self._after_id = 0

    def promote_some(self, db: Database) -> int:
        """Look at the next 500 that wait, and promote those without a head: how many."""
        found = db.transact(self._slice, read_only=True)
        promoted = sum(db.transact(_promote, self._endpoint_id, user_id) for user_id in found)
        if promoted:
            log.error("%d deliveries waited for nobody and were promoted", promoted)
        return promoted

    def _slice(self, tx: Tx) -> list[int]:
        """Users of those without a head; moves on to the next slice, and endpoint by endpoint."""
        rows = outbox_queries.waiting_slice(tx, self._endpoint_id, self._after_id, MOST_AT_ONCE)
        self._after_id = rows[-1][0] if rows else 0
        if not rows:
            later = (one for one in change_queries.endpoint_ids(tx) if one > self._endpoint_id)
            self._endpoint_id = next(later, 0)
        return sorted({user_id for _, user_id, has_head in rows if not has_head})


def _promote(tx: Tx, endpoint_id: int, user_id: int) -> int:
    lock_endpoints(tx, [endpoint_id])
    first = first_without_head(tx, endpoint_id, user_id)
    return 0 if first is None else promote_if_waiting(tx, [first])
