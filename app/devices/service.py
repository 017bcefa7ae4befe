"""The use cases. Each is one transaction, run by `Database.transact`, maybe more than once."""

import datetime
import json
from dataclasses import dataclass
from typing import Any

from app.db import Tx, uncertain_result
from app.devices import queries
from app.devices.schemas import Device, NewDevice
from app.errors import DeviceLimitReached, DeviceNotFound, PreconditionFailed
from app.etags import Precondition
from app.quotas.queries import count_devices, lock_user
from app.quotas.schemas import Quota


@dataclass(frozen=True, slots=True)
class Registered:
    """A device that is registered, by this call (`created`) or before it."""

    device: Device
    quota: Quota
    created: bool


def register(tx: Tx, user_id: int, device_id: str, new: NewDevice, default_limit: int) -> Registered:
    """Register the device, or refresh it if it is known, which takes no slot and works at the limit.

    Holds the user's lock to the end of `tx`. Safe to call again with the same `device_id`. Raises
    DeviceLimitReached (409).
    """
    lock_user(tx, user_id)
    state = queries.registration_state(tx, user_id, device_id)
    quota = Quota(limit=default_limit, used=state.used)
    if state.known:
        return _registered_by_this_call(tx, state.known) or _refreshed(tx, state.known, state.at, new, quota)
    if quota.used >= quota.limit:
        raise DeviceLimitReached(user_id, limit=quota.limit, used=quota.used)
    device = queries.insert_device(tx, user_id, device_id, new, state.at)
    return Registered(device=device, quota=quota.with_one_more(), created=True)


def _registered_by_this_call(tx: Tx, known: Device) -> Registered | None:
    """The answer of this call's earlier run, if its uncertain COMMIT did happen after all.

    `registered_at` is given under the lock, to the microsecond: the same one is the same insert.
    """
    earlier: Registered | None = uncertain_result(tx)
    if earlier and earlier.created and earlier.device.registered_at == known.registered_at:
        return earlier
    return None


def _refreshed(tx: Tx, known: Device, at: datetime.datetime, new: NewDevice, quota: Quota) -> Registered:
    changes = {
        name: value for name, value in new.given_fields().items() if not _same(getattr(known, name), value)
    }
    revision = known.revision + 1 if changes else known.revision
    device = queries.update_device(tx, known, {**changes, "last_seen_at": at, "revision": revision})
    return Registered(device=device, quota=quota, created=False)


def _same(one: Any, other: Any) -> bool:
    """As JSON: Python's own comparison would take 1, 1.0 and true for one value."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def revoke(tx: Tx, user_id: int, device_id: str, precondition: Precondition) -> bool:
    """Delete the device; its slot is free as soon as `tx` has committed. True, always.

    Takes the user's lock: a registration that counts meanwhile must see the device or not, and a list of
    calls must have an order. Raises DeviceNotFound (404), PreconditionFailed (412).
    """
    lock_user(tx, user_id)
    known = queries.find_device(tx, user_id, device_id)
    if known is None:
        if uncertain_result(tx):
            return True  # this call's earlier run has deleted it
        raise DeviceNotFound(user_id, device_id)
    if not precondition.holds(known.revision):
        raise PreconditionFailed(known.revision)
    queries.delete_device(tx, user_id, device_id)
    return True


def read_device(tx: Tx, user_id: int, device_id: str) -> Device:
    """The device. Takes no lock. Raises DeviceNotFound (404)."""
    known = queries.find_device(tx, user_id, device_id)
    if known is None:
        raise DeviceNotFound(user_id, device_id)
    return known


def list_devices(
    tx: Tx, user_id: int, after: tuple[datetime.datetime, str] | None, limit: int, default_limit: int
) -> tuple[list[Device], Quota]:
    """Up to `limit` devices, oldest first, and the quota. Takes no lock; a stranger has no devices."""
    page = queries.list_devices(tx, user_id, after, limit)
    return page, Quota(limit=default_limit, used=count_devices(tx, user_id))
