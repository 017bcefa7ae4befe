"""Erasing a user, in batches: each transaction is short, and the last one leaves nothing."""

from app.db import Tx
from app.devices.queries import delete_devices, some_ids
from app.dialects import database_clock
from app.events.queries import Done, Happened, append, committed_before, delete_events, oldest_ids
from app.origin import Origin
from app.quotas.queries import lock_user
from app.users import queries
from app.webhooks.claim_queries import lock_endpoints
from app.webhooks.outbox_queries import delete_of_user, endpoints_of_user

MOST_AT_ONCE = 500


def erase_some(tx: Tx, user_id: int) -> bool:
    """Delete up to 500 devices, events and deliveries; True if there may be more. Takes the user's lock.

    And those of the deliveries' endpoints. Events go before deliveries, so that no new ones come of them.
    """
    lock_user(tx, user_id)
    devices = some_ids(tx, user_id, MOST_AT_ONCE)
    events = oldest_ids(tx, user_id, MOST_AT_ONCE)
    if devices:
        delete_devices(tx, user_id, devices)
    if events:
        delete_events(tx, events)
    deliveries = _delete_deliveries(tx, user_id)
    return MOST_AT_ONCE in (len(devices), len(events), deliveries)


def erase_rest(tx: Tx, origin: Origin, user_id: int) -> Done:
    """Delete whatever is left of the user, the lock row included, and write the one event that stays.

    Takes the user's lock, so that no registration slips in between. What was still to be told of the user is
    told no more, but for what is under way. Safe to call again.
    """
    lock_user(tx, user_id)
    earlier: Done | None = committed_before(tx, origin)
    if earlier is not None:
        queries.delete_lock_row(tx, user_id)  # made anew for this run
        return earlier
    erased = Happened("user.erased", user_id, database_clock(tx))
    queries.delete_rows(tx, user_id)
    while _delete_deliveries(tx, user_id) == MOST_AT_ONCE:
        pass
    append(tx, origin, erased)
    return Done(erased)


def _delete_deliveries(tx: Tx, user_id: int) -> int:
    """Up to 500, under the locks of their endpoints: how many."""
    endpoint_ids = endpoints_of_user(tx, user_id)
    if not endpoint_ids:
        return 0
    lock_endpoints(tx, endpoint_ids)
    return delete_of_user(tx, user_id, MOST_AT_ONCE)
