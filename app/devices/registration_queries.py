"""What registrations decide by: one statement for one call, or for all calls of a group."""

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Label, Select, and_, bindparam, exists, func, literal, select
from sqlalchemy.sql.elements import ColumnElement

from app.db import Tx
from app.devices.queries import device_in
from app.devices.schemas import Device
from app.dialects import ASCII_KEY, UserId, utc_now
from app.lists import ListOf, rows_as_json
from app.quotas.queries import quota_of
from app.quotas.schemas import Quota
from app.tables import device_blocks as blocks
from app.tables import device_registration_locks as locks
from app.tables import devices, user_quotas

_all = devices.alias("all_of_user")


def _counted(user_id: ColumnElement[int], device_id: ColumnElement[str]) -> tuple[Label[Any], ...]:
    """What is counted and looked up of a user, for a registration of this device."""
    of_user = _all.c.user_id == user_id
    own = user_quotas.c.user_id == user_id
    used = select(func.count()).select_from(_all).where(of_user)
    # By the primary key: `devices_by_expiry` would lead through what has expired of all users.
    some = select(_all.c.user_id).with_hint(_all, "FORCE INDEX (PRIMARY)", "mysql").where(of_user)
    return (
        used.scalar_subquery().label("used"),
        some.where(_all.c.expires_at <= utc_now()).exists().label("some_expired"),
        exists().where(blocks.c.user_id == user_id, blocks.c.device_id == device_id).label("is_blocked"),
        select(user_quotas.c.device_limit).where(own).scalar_subquery().label("own_limit"),
        select(user_quotas.c.revision).where(own).scalar_subquery().label("quota_revision"),
    )


_user: BindParameter[int] = bindparam("user")
_device: BindParameter[str] = bindparam("device")
_one = select(literal(1).label("one")).subquery("one")
_state = select(utc_now().label("at"), *_counted(_user, _device), devices).select_from(
    _one.outerjoin(devices, and_(devices.c.user_id == _user, devices.c.device_id == _device))
)


_asked = ListOf(user_id=UserId(), device_id=ASCII_KEY)


def _is_asked(asked: Any) -> ColumnElement[bool]:
    return and_(devices.c.user_id == asked.c.user_id, devices.c.device_id == asked.c.device_id)


def _states_of(asked: Any) -> Select[datetime.datetime, str]:
    with_locks = asked.outerjoin(locks, locks.c.user_id == asked.c.user_id)
    state = rows_as_json(
        asked.c.place,
        *_counted(asked.c.user_id, asked.c.device_id),
        devices.c.user_id.is_not(None),
        locks.c.user_id.is_not(None),
    )
    query = select(utc_now().label("at"), state.label("states"))
    return query.select_from(with_locks.outerjoin(devices, _is_asked(asked)))


_states = {dialect: _states_of(asked) for dialect, asked in _asked.of_dialect.items()}
_known = {
    dialect: select(devices).select_from(asked.join(devices, _is_asked(asked)))
    for dialect, asked in _asked.of_dialect.items()
}


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """What a registration decides by, as of one statement under the user's lock."""

    at: datetime.datetime
    quota: Quota
    some_expired: bool
    is_blocked: bool
    known: Device | None


@dataclass(frozen=True, slots=True)
class StateInGroup:
    """The same for one of many, the device itself left out: see `known_devices`."""

    used: int
    some_expired: bool
    is_blocked: bool
    own_limit: int | None
    quota_revision: int | None
    is_known: bool
    has_lock_row: bool


def registration_state(tx: Tx, user_id: int, device_id: str, default_limit: int) -> RegistrationState:
    """The clock, the user's quota, and the device if it is there, in one round trip.

    `quota.used` counts the rows that are there, those too whose lease has run out: see `expired_devices`.
    """
    row = tx.execute(_state, {"user": user_id, "device": device_id}).one()
    return RegistrationState(
        at=row.at,
        quota=quota_of(row.used, row.own_limit, row.quota_revision, default_limit),
        some_expired=bool(row.some_expired),
        is_blocked=bool(row.is_blocked),
        known=None if row.user_id is None else device_in(row),
    )


def registration_states(
    tx: Tx, asked: Sequence[tuple[int, str]]
) -> tuple[datetime.datetime, list[StateInGroup]]:
    """The clock, and the state of each user and device in the order asked: one statement, one instant."""
    found = tx.execute(_states[tx.dialect.name], _asked.parameter(tx, asked)).one()
    return found.at, [StateInGroup(*state) for _, *state in sorted(json.loads(found.states))]


def known_devices(tx: Tx, asked: Sequence[tuple[int, str]]) -> list[Device]:
    """Those of the devices that are there. The caller holds their users' locks."""
    if not asked:
        return []
    rows = tx.execute(_known[tx.dialect.name], _asked.parameter(tx, asked))
    return [device_in(row) for row in rows]
