"""The statements about devices. Each has `user_id =`, so that it reads one place of the primary key."""

import datetime
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, and_, bindparam, delete, func, insert, literal, select, tuple_, update

from app.db import Tx
from app.devices.schemas import Device, NewDevice
from app.dialects import utc_now
from app.tables import devices

_one = select(literal(1).label("one")).subquery("one")
_used = (
    select(func.count()).select_from(devices).where(devices.c.user_id == bindparam("user")).scalar_subquery()
)
_state = select(utc_now().label("at"), _used.label("used"), devices).select_from(
    _one.outerjoin(
        devices, and_(devices.c.user_id == bindparam("user"), devices.c.device_id == bindparam("device"))
    )
)
_insert = insert(devices)


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """What a registration decides by, as of one statement under the user's lock."""

    at: datetime.datetime
    used: int
    known: Device | None


def registration_state(tx: Tx, user_id: int, device_id: str) -> RegistrationState:
    """The clock, the user's count and the device if it is there, in one round trip."""
    row = tx.execute(_state, {"user": user_id, "device": device_id}).one()
    return RegistrationState(row.at, row.used, None if row.user_id is None else _device(row))


def insert_device(tx: Tx, user_id: int, device_id: str, new: NewDevice, at: datetime.datetime) -> Device:
    """Insert at revision 1. The values are complete, so nothing needs to be read back."""
    values = new.model_dump() | {
        "user_id": user_id,
        "device_id": device_id,
        "registered_at": at,
        "last_seen_at": at,
        "revision": 1,
    }
    tx.execute(_insert, values)
    return Device.model_construct(**values)


def update_device(tx: Tx, device: Device, changes: dict[str, Any]) -> Device:
    """Write `changes` over `device`, which the caller's lock keeps as it was read."""
    tx.execute(update(devices).where(_is(device.user_id, device.device_id)).values(changes))
    return device.model_copy(update=changes)


def delete_device(tx: Tx, user_id: int, device_id: str) -> None:
    tx.execute(delete(devices).where(_is(user_id, device_id)))


def find_device(tx: Tx, user_id: int, device_id: str) -> Device | None:
    row = tx.execute(select(devices).where(_is(user_id, device_id))).one_or_none()
    return None if row is None else _device(row)


def list_devices(
    tx: Tx, user_id: int, after: tuple[datetime.datetime, str] | None, limit: int
) -> list[Device]:
    """At most `limit` devices, by (registered_at, device_id) from `after` on.

    Reads all of the user's rows and sorts them, up to the largest limit of 10,000; see
    docs/decisions/0002-primary-key-of-devices.md.
    """
    query = select(devices).where(devices.c.user_id == user_id)
    if after is not None:
        query = query.where(tuple_(devices.c.registered_at, devices.c.device_id) > after)
    page = query.order_by(devices.c.registered_at, devices.c.device_id).limit(limit)
    return [_device(row) for row in tx.execute(page)]


def _is(user_id: int, device_id: str) -> Any:
    return and_(devices.c.user_id == user_id, devices.c.device_id == device_id)


def _device(row: Row[Any]) -> Device:
    return Device.model_construct(**{name: getattr(row, name) for name in _COLUMNS})


_COLUMNS = tuple(devices.c.keys())
