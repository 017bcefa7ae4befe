"""What happens to a registered device. Each use case is one transaction, run by `Database.transact`."""

import datetime
from dataclasses import dataclass

from app.db import Tx
from app.devices import queries
from app.devices.schemas import Device, DeviceChange
from app.devices.service import MOST_AT_ONCE, remove_expired, state_without_expired
from app.dialects import database_clock
from app.errors import (
    BlockNotFound,
    DeviceAlreadyRegistered,
    DeviceBlocked,
    DeviceExpired,
    DeviceLimitReached,
    DeviceNotFound,
    PreconditionFailed,
)
from app.etags import Precondition
from app.events.queries import Done, Happened, append, committed_before, last_type_of_device
from app.origin import Origin
from app.quotas.queries import lock_user, lock_users
from app.quotas.schemas import Quota
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Changed(Done):
    """A device as it is now."""

    device: Device


@dataclass(frozen=True, slots=True)
class Moved(Done):
    """A device at its receiver, and the receiver's quota."""

    device: Device
    quota: Quota


@dataclass(frozen=True, slots=True)
class Revoked(Done):
    """One batch of devices, and until when those of the whole call were registered."""

    device_ids: frozenset[str]
    until: datetime.datetime


def change_device(
    tx: Tx, origin: Origin, user_id: int, device_id: str, change: DeviceChange, precondition: Precondition
) -> Changed:
    """Merge `change` into the device; `revision` grows if anything differs.

    Takes the user's lock, so that what was merged into is what is written over. Raises DeviceNotFound (404),
    PreconditionFailed (412).
    """
    lock_user(tx, user_id)
    earlier: Changed | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    known = _find(tx, user_id, device_id)
    _check(known, precondition)
    changes = change.merged_into(known)
    if not changes:
        return Changed(None, known)
    changed = queries.update_device(tx, known, {**changes, "revision": known.revision + 1})
    updated = Happened("device.updated", user_id, database_clock(tx), device_id, changes)
    append(tx, origin, updated)
    return Changed(updated, changed)


def heartbeat(tx: Tx, user_id: int, device_id: str) -> Device:
    """Note that the device was seen and start its lease anew. Takes no user lock; safe to repeat.

    Raises DeviceExpired (410) where the lease ran out, DeviceNotFound (404).
    """
    if queries.renew_if_alive(tx, user_id, device_id):
        return _find(tx, user_id, device_id)
    expired = queries.has_expired(tx, user_id, device_id)
    if expired or last_type_of_device(tx, user_id, device_id) == "device.expired":
        raise DeviceExpired(user_id, device_id)
    raise DeviceNotFound(user_id, device_id)


def revoke(
    tx: Tx, origin: Origin, user_id: int, device_id: str, precondition: Precondition, block: bool = False
) -> Done:
    """Delete the device, and with `block` refuse its id from now on.

    Takes the user's lock: a registration that counts meanwhile must see the device or not, and a list of
    calls must have an order. Raises DeviceNotFound (404), PreconditionFailed (412).
    """
    lock_user(tx, user_id)
    earlier: Done | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    known = _find(tx, user_id, device_id)
    _check(known, precondition)
    revoked = Happened("device.revoked", user_id, database_clock(tx), device_id)
    queries.delete_devices(tx, user_id, [device_id])
    append(tx, origin, revoked)
    if block:
        queries.insert_block(tx, user_id, device_id, revoked.at)
        append(tx, origin, Happened("device.blocked", user_id, revoked.at, device_id))
    return Done(revoked)


def allow(tx: Tx, origin: Origin, user_id: int, device_id: str) -> Done:
    """Lift a block; the device may register again. Raises BlockNotFound (404).

    Takes the user's lock, as whatever decides about a registration does.
    """
    lock_user(tx, user_id)
    earlier: Done | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    if not queries.delete_block(tx, user_id, device_id):
        raise BlockNotFound(user_id, device_id)
    allowed = Happened("device.allowed", user_id, database_clock(tx), device_id)
    append(tx, origin, allowed)
    return Done(allowed)


def transfer(
    tx: Tx, settings: Settings, origin: Origin, user_id: int, device_id: str, to_user_id: int
) -> Moved:
    """Move the device to another user, under that user's limit.

    Takes both users' locks in ascending order: A to B and B to A at once would otherwise deadlock. Raises
    DeviceNotFound (404), DeviceBlocked (403), DeviceLimitReached and DeviceAlreadyRegistered (409).
    """
    lock_users(tx, user_id, to_user_id)
    earlier: Moved | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    known = _find(tx, user_id, device_id)
    receiver = state_without_expired(tx, settings, origin, to_user_id, device_id)
    if receiver.known is not None:
        raise DeviceAlreadyRegistered(to_user_id, device_id)
    if receiver.is_blocked:
        raise DeviceBlocked(to_user_id, device_id)
    if receiver.quota.used >= receiver.quota.limit:
        raise DeviceLimitReached(to_user_id, limit=receiver.quota.limit, used=receiver.quota.used)
    moved = queries.move_device(tx, known, to_user_id)
    way = {"from_user_id": str(user_id), "to_user_id": str(to_user_id)}
    sent, received = (
        Happened("device.transferred", user, receiver.at, device_id, way) for user in (user_id, to_user_id)
    )
    append(tx, origin, sent, received)
    return Moved(sent, moved, receiver.quota.with_used(receiver.quota.used + 1))


def revoke_some(tx: Tx, origin: Origin, user_id: int, until: datetime.datetime | None) -> Revoked:
    """Revoke up to 500 devices that were registered until then, or now.

    Takes the user's lock for one batch at a time: the lock is short, and so is the log of each commit.
    """
    lock_user(tx, user_id)
    earlier: Revoked | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    now = database_clock(tx)
    ids = queries.ids_registered_until(tx, user_id, until or now, MOST_AT_ONCE)
    if not ids:
        return Revoked(None, frozenset(), until or now)
    queries.delete_devices(tx, user_id, ids)
    revoked = [Happened("device.revoked", user_id, now, device_id) for device_id in ids]
    append(tx, origin, *revoked)
    return Revoked(revoked[0], frozenset(ids), until or now)


def expire_some(tx: Tx, origin: Origin, user_id: int) -> int:
    """Remove up to 500 devices whose lease has run out, under the user's lock, and say how many."""
    lock_user(tx, user_id)
    return remove_expired(tx, origin, user_id, database_clock(tx))


def _find(tx: Tx, user_id: int, device_id: str) -> Device:
    known = queries.find_device(tx, user_id, device_id)
    if known is None:
        raise DeviceNotFound(user_id, device_id)
    return known


def _check(known: Device, precondition: Precondition) -> None:
    if not precondition.holds(known.revision):
        raise PreconditionFailed(known.revision)
