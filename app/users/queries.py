"""The statements that leave nothing of a user."""

from sqlalchemy import delete

from app.db import Tx
from app.tables import (
    device_blocks,
    device_registration_locks,
    devices,
    events,
    idempotency_keys,
    user_quotas,
)

_ALL = (devices, user_quotas, device_blocks, idempotency_keys, events, device_registration_locks)


def delete_rows(tx: Tx, user_id: int) -> None:
    """Delete all rows of the user, its lock row last: who waits for it finds it gone and makes a new one."""
    for table in _ALL:
        tx.execute(delete(table).where(table.c.user_id == user_id))
