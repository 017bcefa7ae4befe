"""The statements about devices. Each has `user_id =`, so that it reads one place of the primary key."""

import datetime
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    Row,
    Select,
    and_,
    delete,
    insert,
    select,
    tuple_,
    update,
)

from app.db import Tx
from app.devices.schemas import Device
from app.dialects import seconds_from_now, utc_now
from app.lists import ListOf
from app.quotas.queries import is_alive
from app.tables import device_blocks as blocks
from app.tables import devices

_COLUMNS = tuple(devices.c.keys())
_new = ListOf(**{column.name: column.type for column in devices.c})
_insert = {
    dialect: insert(devices).from_select(_COLUMNS, select(*(rows.c[name] for name in _COLUMNS)))
    for dialect, rows in _new.of_dialect.items()
}


def insert_device(tx: Tx, device: Device) -> None:
    tx.execute(insert(devices), {name: getattr(device, name) for name in _COLUMNS})


def insert_devices_of_several(tx: Tx, new: Sequence[Device]) -> None:
    """Insert devices of whatever users by one statement. The caller holds their locks."""
    if new:
        rows = ([getattr(device, name) for name in _COLUMNS] for device in new)
        tx.execute(_insert[tx.dialect.name], _new.parameter(tx, rows))


def update_device(tx: Tx, device: Device, changes: dict[str, Any]) -> Device:
    """Write `changes` over `device`, which the caller's lock keeps as it was read."""
    tx.execute(update(devices).where(_is(device.user_id, device.device_id)).values(changes))
    return device.model_copy(update=changes)


def renew_if_alive(tx: Tx, user_id: int, device_id: str) -> bool:
    """Move `last_seen_at` to now and start the lease anew, unless it has run out or there is no device.

    Takes no user lock. Its rival is a registration that removes what has expired: whichever has the row
    first, the other sees what became of it, since both repeat the condition on the row itself.
    """
    renewed = (
        update(devices)
        .where(_is(user_id, device_id), is_alive())
        .values(last_seen_at=utc_now(), expires_at=seconds_from_now(devices.c.lease_seconds))
    )
    return tx.execute(renewed).rowcount == 1


def delete_devices(tx: Tx, user_id: int, device_ids: Sequence[str]) -> None:
    tx.execute(delete(devices).where(devices.c.user_id == user_id, devices.c.device_id.in_(device_ids)))


def expired_devices(tx: Tx, user_id: int, limit: int) -> list[Device]:
    """Devices whose lease has run out, locked: a heartbeat in flight is waited for, and then counts.

    By the primary key: `devices_by_expiry` would lock what has expired of other users too, or wait for it.
    """
    query = (
        select(devices)
        .with_hint(devices, "FORCE INDEX (PRIMARY)", "mysql")
        .where(devices.c.user_id == user_id, devices.c.expires_at <= utc_now())
    )
    return _devices(tx, query.order_by(devices.c.device_id).limit(limit).with_for_update())


def find_device(tx: Tx, user_id: int, device_id: str) -> Device | None:
    """The device, unless its lease has run out."""
    row = tx.execute(select(devices).where(_is(user_id, device_id), is_alive())).one_or_none()
    return None if row is None else device_in(row)


def has_expired(tx: Tx, user_id: int, device_id: str) -> bool:
    """Its lease has run out, and nobody has removed it yet."""
    expired = select(devices.c.user_id).where(_is(user_id, device_id), devices.c.expires_at <= utc_now())
    return tx.execute(expired).first() is not None


def first_to_evict(tx: Tx, user_id: int, on_limit: str, number: int) -> list[Device]:
    """The `number` devices that go first: by age, or by when they were last seen.

    All of the user's are locked. Its rival is a heartbeat in flight: without the lock, a device that was just
    seen would go for the one that was seen longest ago.
    """
    age = devices.c.last_seen_at if on_limit == "evict_least_recently_seen" else devices.c.registered_at
    query = select(devices).where(devices.c.user_id == user_id)
    return _devices(tx, query.order_by(age, devices.c.device_id).limit(number).with_for_update())


def list_devices(
    tx: Tx, user_id: int, after: tuple[datetime.datetime, str] | None, limit: int
) -> list[Device]:
    """At most `limit` devices, by (registered_at, device_id) from `after` on.

    Reads all of the user's rows and sorts them, up to the largest limit of 10,000; see
    docs/decisions/0002-primary-key-of-devices.md.
    """
    query = select(devices).where(devices.c.user_id == user_id, is_alive())
    if after is not None:
        query = query.where(tuple_(devices.c.registered_at, devices.c.device_id) > after)
    return _devices(tx, query.order_by(devices.c.registered_at, devices.c.device_id).limit(limit))


def ids_registered_until(tx: Tx, user_id: int, until: datetime.datetime, limit: int) -> list[str]:
    """At most `limit` devices, by id, that were registered until then and whose lease has not run out."""
    registered = (devices.c.user_id == user_id, devices.c.registered_at <= until, is_alive())
    query = select(devices.c.device_id).where(*registered)
    return list(tx.execute(query.order_by(devices.c.device_id).limit(limit)).scalars())


def some_ids(tx: Tx, user_id: int, limit: int) -> list[str]:
    query = select(devices.c.device_id).where(devices.c.user_id == user_id)
    return list(tx.execute(query.order_by(devices.c.device_id).limit(limit)).scalars())


def move_device(tx: Tx, device: Device, to_user_id: int) -> Device:
    tx.execute(update(devices).where(_is(device.user_id, device.device_id)).values(user_id=to_user_id))
    return device.model_copy(update={"user_id": to_user_id})


def insert_block(tx: Tx, user_id: int, device_id: str, at: datetime.datetime) -> None:
    tx.execute(insert(blocks), {"user_id": user_id, "device_id": device_id, "blocked_at": at})


def delete_block(tx: Tx, user_id: int, device_id: str) -> bool:
    found = delete(blocks).where(blocks.c.user_id == user_id, blocks.c.device_id == device_id)
    return tx.execute(found).rowcount == 1


def users_with_expired_devices(tx: Tx, limit: int) -> list[int]:
    """Users of the `limit` devices that expired first. Reads `devices_by_expiry` from its oldest end."""
    oldest = (
        select(devices.c.user_id)
        .where(devices.c.expires_at <= utc_now())
        .order_by(devices.c.expires_at)
        .limit(limit)
        .subquery("oldest")
    )
    return sorted(set(tx.execute(select(oldest.c.user_id)).scalars()))


def _is(user_id: int, device_id: str) -> Any:
    return and_(devices.c.user_id == user_id, devices.c.device_id == device_id)


def _devices(tx: Tx, query: Select[Any]) -> list[Device]:
    return [device_in(row) for row in tx.execute(query)]


def device_in(row: Row[Any]) -> Device:
    return Device.model_construct(**{name: getattr(row, name) for name in _COLUMNS})
