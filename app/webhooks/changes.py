"""What people and the sweeper do to deliveries. Each takes the endpoint's lock first."""

from app.db import Database, Tx
from app.webhooks import change_queries, outbox_queries, settle_queries
from app.webhooks.claim_queries import lock_endpoints

MOST_AT_ONCE = 500
KEPT_SECONDS = 30 * 86_400


def retry(tx: Tx, delivery_id: int) -> bool:
    """Try it now: one that is retried later, or one that was discarded. False if it is neither.

    A discarded one has all its attempts again, and stands behind what is open of its user.
    """
    found = change_queries.endpoint_and_user_of(tx, delivery_id)
    if found is None:
        return False
    lock_endpoints(tx, [found.endpoint_id])
    if change_queries.hasten_if_retrying(tx, delivery_id):
        return True
    if not change_queries.reopen_if_discarded(tx, delivery_id):
        return False
    first = change_queries.first_without_head(tx, found.endpoint_id, found.user_id)
    if first is not None:
        settle_queries.promote_if_waiting(tx, [first])
    return True


def discard(tx: Tx, delivery_id: int) -> bool:
    """Give up a delivery that waits or is retried; False if it is under way or has ended.

    What stands behind it goes on.
    """
    found = change_queries.endpoint_and_user_of(tx, delivery_id)
    if found is None:
        return False
    lock_endpoints(tx, [found.endpoint_id])
    if not change_queries.discard_if_unclaimed(tx, [delivery_id]):
        return False
    settle_queries.promote_followers(tx, [delivery_id])
    return True


def discard_what_was_left(db: Database) -> int:
    """Discard up to 500 deliveries of each deleted endpoint: how many in all."""
    deleted = db.transact(change_queries.deleted_endpoints, read_only=True)
    return sum(db.transact(_discard_some, endpoint_id) for endpoint_id in deleted)


def _discard_some(tx: Tx, endpoint_id: int) -> int:
    lock_endpoints(tx, [endpoint_id])
    ids = change_queries.unclaimed_of_endpoint(tx, endpoint_id, MOST_AT_ONCE)
    return change_queries.discard_if_unclaimed(tx, ids) if ids else 0


def forget_ended(db: Database) -> int:
    """Delete up to 500 deliveries that ended 30 days ago, and endpoints that nothing refers to: how many."""
    ids = db.transact(outbox_queries.ended_deliveries, KEPT_SECONDS, MOST_AT_ONCE, read_only=True)
    return db.transact(_forget_some, ids)


def _forget_some(tx: Tx, ids: list[int]) -> int:
    gone = outbox_queries.delete_if_ended(tx, ids, KEPT_SECONDS) if ids else 0
    return gone + change_queries.delete_emptied_endpoints(tx)
