"""The lock row of a user, and the count that it guards."""

from collections.abc import Iterable, Sequence

from sqlalchemy import func, insert, literal, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from app.db import RunFirst, Tx, is_multi_writer
from app.dialects import ASKED, asked_devices, utc_now
from app.quotas.schemas import Quota
from app.recording import LockWait
from app.tables import device_registration_locks as locks
from app.tables import devices, user_quotas

_lock = select(locks.c.user_id).with_for_update()
_write_lock = update(locks).values(version=locks.c.version + 1)
_insert_unless_there = (
    insert(locks).prefix_with("IGNORE", dialect="mysql").prefix_with("OR IGNORE", dialect="sqlite")
)
_insert_lock_row = _insert_unless_there.values(version=0, created_at=utc_now())
_insert_lock_rows = {
    name: _insert_unless_there.from_select(
        ["user_id", "version", "created_at"],
        select(asked.c.user_id, literal(0), utc_now()).order_by(asked.c.place),
    )
    for name, asked in ASKED.items()
}


def lock_user(tx: Tx, user_id: int) -> None:
    """Take the user's lock, held until `tx` ends. The first statement of each transaction that needs it.

    Whoever else registers or revokes for this user waits here; without it both would count the same
    devices and both insert. On SQLite, BEGIN IMMEDIATE has already made rivals wait.

    Where several nodes write, a row lock holds back nobody on another node, but two writes of one row
    conflict at certification: there the lock is a write that changes the row (rule 12 of the protocol).

    A row that is missing is made in a transaction of its own, because a row made in this one would vanish
    with each refusal, and everyone who waited for it would make it again and deadlock.
    """
    with LockWait() as wait:
        if is_multi_writer(tx):
            found = tx.execute(_write_lock.where(locks.c.user_id == user_id)).rowcount
        else:
            found = len(tx.execute(_lock.where(locks.c.user_id == user_id)).all())
        wait.got_it = found == 1
    if not wait.got_it:
        raise RunFirst(insert_lock_row, user_id)


def insert_lock_row(tx: Tx, user_id: int) -> None:
    """Make the user's lock row unless it is there. Alone in its transaction: IGNORE shares locks."""
    tx.execute(_insert_lock_row, {"user_id": user_id})


def lock_users_if_free(tx: Tx, user_ids: Iterable[int]) -> set[int]:
    """Take the locks of these users that have a row which nobody else has locked; whose they are.

    In ascending order, as all who take several. Waits for nobody, so that it holds up nobody whom the same
    statement has locked already. Not for where several nodes write, see `lock_user`.
    """
    wanted = select(locks.c.user_id).where(locks.c.user_id.in_(sorted(user_ids)))
    with LockWait() as wait:
        got = tx.execute(wanted.order_by(locks.c.user_id).with_for_update(skip_locked=True)).scalars()
        locked = set(got)
        wait.got_it = bool(locked)
    return locked


def insert_lock_rows(tx: Tx, user_ids: Sequence[int]) -> None:
    """`insert_lock_row` for several users by one statement, in ascending order."""
    if user_ids:
        of_users = asked_devices(tx, [(user_id, "") for user_id in sorted(user_ids)])  # of any device
        tx.execute(_insert_lock_rows[tx.dialect.name], {"asked": of_users})


def lock_users(tx: Tx, *user_ids: int) -> None:
    """Take the locks of several users, in ascending order, so that no two calls wait for each other."""
    for user_id in sorted(set(user_ids)):
        lock_user(tx, user_id)


def is_alive() -> ColumnElement[bool]:
    """The device's lease has not run out. What has expired and was not swept yet is as good as gone."""
    return or_(devices.c.expires_at.is_(None), devices.c.expires_at > utc_now())


def read_quota(tx: Tx, user_id: int, default_limit: int) -> Quota:
    """The user's quota; reads the primary key's range `user_id` of devices."""
    used = select(func.count()).select_from(devices).where(devices.c.user_id == user_id, is_alive())
    own = select(user_quotas.c.device_limit).where(user_quotas.c.user_id == user_id)
    revision = select(user_quotas.c.revision).where(user_quotas.c.user_id == user_id)
    columns = (used.scalar_subquery(), own.scalar_subquery(), revision.scalar_subquery())
    return quota_of(*tx.execute(select(*columns)).one(), default_limit)


def quota_of(used: int, own_limit: int | None, revision: int | None, default_limit: int) -> Quota:
    limit, source = (default_limit, "default") if own_limit is None else (own_limit, "override")
    return Quota.model_construct(limit=limit, used=used, source=source, revision=revision or 0)


def write_own_limit(tx: Tx, user_id: int, limit: int | None, revision: int) -> None:
    """Set the user's own limit, None for the default. The caller's lock keeps rivals away."""
    if revision == 1:
        tx.execute(insert(user_quotas).values(user_id=user_id, device_limit=limit, revision=1))
    else:
        change = update(user_quotas).where(user_quotas.c.user_id == user_id)
        tx.execute(change.values(device_limit=limit, revision=revision))
