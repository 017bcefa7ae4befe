"""What registrations decide by: one statement for one call, or for all calls of a group."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Row, Select, and_, bindparam, exists, func, literal, select
from sqlalchemy.sql.elements import ColumnElement

from app.db import Tx
from app.devices.queries import device_in
from app.devices.schemas import Device
from app.dialects import ASKED, asked_devices, utc_now
from app.quotas.queries import quota_of
from app.quotas.schemas import Quota
from app.tables import device_blocks as blocks
from app.tables import device_registration_locks as locks
from app.tables import devices, user_quotas

_all = devices.alias("all_of_user")


def _state_of(user_id: ColumnElement[int], device_id: ColumnElement[str]) -> Select[Any]:
    of_user = _all.c.user_id == user_id
    own = user_quotas.c.user_id == user_id
    used = select(func.count()).select_from(_all).where(of_user)
    # By the primary key: `devices_by_expiry` would lead through what has expired of all users.
    some = select(_all.c.user_id).with_hint(_all, "FORCE INDEX (PRIMARY)", "mysql").where(of_user)
    return select(
        utc_now().label("at"),
        used.scalar_subquery().label("used"),
        some.where(_all.c.expires_at <= utc_now()).exists().label("some_expired"),
        exists().where(blocks.c.user_id == user_id, blocks.c.device_id == device_id).label("is_blocked"),
        select(user_quotas.c.device_limit).where(own).scalar_subquery().label("own_limit"),
        select(user_quotas.c.revision).where(own).scalar_subquery().label("quota_revision"),
        devices,
    )


_user: BindParameter[int] = bindparam("user")
_device: BindParameter[str] = bindparam("device")
_one = select(literal(1).label("one")).subquery("one")
_state = _state_of(_user, _device).select_from(
    _one.outerjoin(devices, and_(devices.c.user_id == _user, devices.c.device_id == _device))
)


def _states_of(asked: Any) -> Select[Any]:
    registered = and_(devices.c.user_id == asked.c.user_id, devices.c.device_id == asked.c.device_id)
    return (
        _state_of(asked.c.user_id, asked.c.device_id)
        .add_columns(locks.c.user_id.is_not(None).label("has_lock_row"))
        .select_from(
            asked.outerjoin(locks, locks.c.user_id == asked.c.user_id).outerjoin(devices, registered)
        )
        .order_by(asked.c.place)
    )


_states = {name: _states_of(asked) for name, asked in ASKED.items()}


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """What a registration decides by, as of one statement."""

    at: datetime.datetime
    quota: Quota
    some_expired: bool
    is_blocked: bool
    known: Device | None
    has_lock_row: bool = True


def registration_state(tx: Tx, user_id: int, device_id: str, default_limit: int) -> RegistrationState:
    """The clock, the user's quota, and the device if it is there, in one round trip.

    `quota.used` counts the rows that are there, those too whose lease has run out: see `expired_devices`.
    """
    row = tx.execute(_state, {"user": user_id, "device": device_id}).one()
    return _state_in(row, default_limit, has_lock_row=True)


def registration_states(
    tx: Tx, asked: Sequence[tuple[int, str]], default_limit: int
) -> list[RegistrationState]:
    """`registration_state` of each user and device, in the order asked, all of them as of one instant."""
    rows = tx.execute(_states[tx.dialect.name], {"asked": asked_devices(tx, asked)})
    return [_state_in(row, default_limit, has_lock_row=bool(row.has_lock_row)) for row in rows]


def _state_in(row: Row[Any], default_limit: int, *, has_lock_row: bool) -> RegistrationState:
    return RegistrationState(
        at=row.at,
        quota=quota_of(row.used, row.own_limit, row.quota_revision, default_limit),
        some_expired=bool(row.some_expired),
        is_blocked=bool(row.is_blocked),
        known=None if row.user_id is None else device_in(row),
        has_lock_row=has_lock_row,
    )
