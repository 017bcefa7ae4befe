"""The lock row of a user, and the count that it guards."""

from sqlalchemy import func, insert, select, update

from app.db import RunFirst, Tx, is_multi_writer
from app.dialects import utc_now
from app.tables import device_registration_locks as locks
from app.tables import devices

_lock = select(locks.c.user_id).with_for_update()
_write_lock = update(locks).values(version=locks.c.version + 1)
_insert_lock_row = (
    insert(locks)
    .values(version=0, created_at=utc_now())
    .prefix_with("IGNORE", dialect="mysql")
    .prefix_with("OR IGNORE", dialect="sqlite")
)


def lock_user(tx: Tx, user_id: int) -> None:
    """Take the user's lock, held until `tx` ends. The first statement of each transaction that needs it.

    Whoever else registers or revokes for this user waits here; without it both would count the same
    devices and both insert. On SQLite, BEGIN IMMEDIATE has already made rivals wait.

    Where several nodes write, a row lock holds back nobody on another node, but two writes of one row
    conflict at certification: there the lock is a write that changes the row (rule 12 of the protocol).

    A row that is missing is made in a transaction of its own, because a row made in this one would vanish
    with each refusal, and everyone who waited for it would make it again and deadlock.
    """
    if is_multi_writer(tx):
        found = tx.execute(_write_lock.where(locks.c.user_id == user_id)).rowcount
    else:
        found = len(tx.execute(_lock.where(locks.c.user_id == user_id)).all())
    if not found:
        raise RunFirst(insert_lock_row, user_id)


def insert_lock_row(tx: Tx, user_id: int) -> None:
    """Make the user's lock row unless it is there. Alone in its transaction: IGNORE shares locks."""
    tx.execute(_insert_lock_row, {"user_id": user_id})


def count_devices(tx: Tx, user_id: int) -> int:
    """Devices of the user; reads the primary key's range `user_id`."""
    count = select(func.count()).select_from(devices).where(devices.c.user_id == user_id)
    return tx.execute(count).scalar_one()
