"""Erasing a user, in batches: each transaction is short, and the last one leaves nothing."""

from app.db import Tx
from app.devices.queries import delete_devices, some_ids
from app.dialects import database_clock
from app.events.queries import Happened, append, delete_events, oldest_ids
from app.origin import Origin
from app.quotas.queries import lock_user
from app.users import queries

MOST_AT_ONCE = 500


def erase_some(tx: Tx, user_id: int) -> bool:
    """Delete up to 500 devices and 500 events; True if there may be more. Takes the user's lock."""
    lock_user(tx, user_id)
    devices = some_ids(tx, user_id, MOST_AT_ONCE)
    events = oldest_ids(tx, user_id, MOST_AT_ONCE)
    if devices:
        delete_devices(tx, user_id, devices)
    if events:
        delete_events(tx, events)
    return MOST_AT_ONCE in (len(devices), len(events))


def erase_rest(tx: Tx, origin: Origin, user_id: int) -> None:
    """Delete whatever is left of the user, the lock row included, and write the one event that stays.

    Takes the user's lock, so that no registration slips in between. Safe to call again.
    """
    lock_user(tx, user_id)
    at = database_clock(tx)
    queries.delete_rows(tx, user_id)
    append(tx, origin, Happened("user.erased", user_id, at))
