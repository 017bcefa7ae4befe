"""The statements that leave nothing of a user."""

from sqlalchemy import delete

from app.db import Tx
from app.tables import (
    device_blocks,
    devices,
    events,
    idempotency_keys,
    user_quotas,
)
from app.tables import device_registration_locks as locks

_ALL = (devices, user_quotas, device_blocks, idempotency_keys, events)


def delete_rows(tx: Tx, user_id: int) -> None:
    """Delete all rows of the user, its lock row last: who waits for it finds it gone and makes a new one."""
    for table in _ALL:
        tx.execute(delete(table).where(table.c.user_id == user_id))
    delete_lock_row(tx, user_id)


def delete_lock_row(tx: Tx, user_id: int) -> None:
    """The caller holds its lock. Who waits for it makes a new one."""
    tx.execute(delete(locks).where(locks.c.user_id == user_id))
