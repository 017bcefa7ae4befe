"""The statements of an import, each for a batch of many users.

A batch has less than 1,000 rows: from there on MariaDB reads a list of values as a table of its own and joins
(`in_predicate_conversion_threshold`), in whatever order, and locks must be taken in ascending order.
"""

import datetime
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import BindParameter, bindparam, case, func, insert, or_, select, tuple_, update

from app.db import RunFirst, Tx, is_multi_writer
from app.devices.schemas import DeviceFields
from app.dialects import INSTANT, database_clock
from app.events.queries import Happened, append
from app.imports.rows import Row
from app.origin import Origin
from app.tables import device_blocks as blocks
from app.tables import device_registration_locks as locks
from app.tables import devices, user_quotas

Key = tuple[int, str]

_users: BindParameter[Sequence[int]] = bindparam("users", expanding=True)
_keys: BindParameter[Sequence[Key]] = bindparam("keys", expanding=True)
_at: BindParameter[datetime.datetime] = bindparam("at", type_=INSTANT)
_is_alive = or_(devices.c.expires_at.is_(None), devices.c.expires_at > _at)

_insert_devices = insert(devices)
_NOT_DESCRIBED = dict.fromkeys(DeviceFields.model_fields)
_lock = select(locks.c.user_id).where(locks.c.user_id.in_(_users)).order_by(locks.c.user_id).with_for_update()
_write_lock = update(locks).where(locks.c.user_id.in_(_users)).values(version=locks.c.version + 1)
_insert_lock_rows = (
    insert(locks).prefix_with("IGNORE", dialect="mysql").prefix_with("OR IGNORE", dialect="sqlite")
)
_used = (
    select(devices.c.user_id, func.count().label("rows"), func.count(case((_is_alive, 1))).label("alive"))
    .where(devices.c.user_id.in_(_users))
    .group_by(devices.c.user_id)
)
_own_limits = select(user_quotas.c.user_id, user_quotas.c.device_limit).where(
    user_quotas.c.user_id.in_(_users), user_quotas.c.device_limit.is_not(None)
)
_known = select(devices.c.user_id, devices.c.device_id).where(
    tuple_(devices.c.user_id, devices.c.device_id).in_(_keys), _is_alive
)
_blocked = select(blocks.c.user_id, blocks.c.device_id).where(blocks.c.user_id.in_(_users))


@dataclass(frozen=True, slots=True)
class Used:
    """Devices of a user: rows that are there, and those of them whose lease has not run out."""

    rows: int
    alive: int


def lock_all(tx: Tx, user_ids: Sequence[int]) -> None:
    """Take the locks of all these users in ascending order, held until `tx` ends; as `lock_user` takes one.

    In any other order a transfer or another import could wait for a lock of ours while we wait for its own.
    Rows that are missing are made first, in a transaction of their own.
    """
    found = set(tx.execute(_lock, {"users": user_ids}).scalars())
    missing = [user_id for user_id in user_ids if user_id not in found]
    if missing:
        raise RunFirst(insert_lock_rows, missing)
    if is_multi_writer(tx):
        tx.execute(_write_lock, {"users": user_ids})


def insert_lock_rows(tx: Tx, user_ids: Sequence[int]) -> None:
    """Make the lock rows that are not there. Alone in its transaction: IGNORE shares locks."""
    at = database_clock(tx)
    tx.execute(_insert_lock_rows, [{"user_id": one, "version": 0, "created_at": at} for one in user_ids])


def count_devices(tx: Tx, user_ids: Sequence[int], at: datetime.datetime) -> dict[int, Used]:
    """Of each user who has any. Reads the primary key's ranges `user_id`."""
    return {
        row.user_id: Used(row.rows, row.alive) for row in tx.execute(_used, {"users": user_ids, "at": at})
    }


def own_limits(tx: Tx, user_ids: Sequence[int]) -> dict[int, int]:
    return {row.user_id: row.device_limit for row in tx.execute(_own_limits, {"users": user_ids})}


def known_devices(tx: Tx, keys: Collection[Key], at: datetime.datetime) -> set[Key]:
    """Those that are there and whose lease has not run out."""
    return _keys_of(tx.execute(_known, {"keys": list(keys), "at": at}))


def blocked_devices(tx: Tx, user_ids: Sequence[int]) -> set[Key]:
    """All that are blocked for these users."""
    return _keys_of(tx.execute(_blocked, {"users": user_ids}))


def insert_devices(tx: Tx, origin: Origin, at: datetime.datetime, rows: Sequence[Row]) -> None:
    """Insert the devices and of each the event, with one statement for each MB of them."""
    if rows:
        tx.execute(_insert_devices, [_device(row, at) for row in rows])
        append(tx, origin, *(registered(row, at) for row in rows))


def registered(row: Row, at: datetime.datetime) -> Happened:
    """The event of the device's import."""
    return Happened("device.registered", row.user_id, at, row.device_id, row.described)


def _device(row: Row, at: datetime.datetime) -> dict[str, object]:
    return {
        **_NOT_DESCRIBED,
        **row.described,
        "user_id": row.user_id,
        "device_id": row.device_id,
        "registered_at": row.registered_at or at,
        "last_seen_at": row.last_seen_at or at,
        "lease_seconds": row.lease_seconds,
        "expires_at": row.end_of_lease(at),
        "revision": 1,
    }


def _keys_of(rows: Iterable[tuple[int, str]]) -> set[Key]:
    return {(user_id, device_id) for user_id, device_id in rows}
