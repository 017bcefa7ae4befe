"""Registering and reading. Each use case is one transaction, which `Database.transact` may run again."""

import datetime
import math
from dataclasses import dataclass, field

from app.db import Tx
from app.devices import queries
from app.devices.registration_queries import RegistrationState, registration_state
from app.devices.schemas import Device, NewDevice, changed_fields
from app.errors import DeviceBlocked, DeviceLimitReached, DeviceNotFound, RegistrationRateExceeded
from app.events.queries import Happened, append, committed_before, nth_last_registration
from app.origin import Origin
from app.quotas.queries import lock_user, read_quota
from app.quotas.schemas import Quota
from app.settings import Settings

DAY_SECONDS = 86_400
MOST_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Registered:
    """A device that is registered, by this call (`created`) or before it, and what had to go for it."""

    device: Device
    quota: Quota
    created: bool
    evicted: list[Device] = field(default_factory=list)
    replaced: bool = False

    @property
    def event(self) -> Happened | None:
        """As `Done` has it."""
        return device_registered(self.device) if self.created else None


def register(
    tx: Tx, settings: Settings, origin: Origin, user_id: int, device_id: str, new: NewDevice
) -> Registered:
    """Register the device, or refresh it if it is known, which takes no slot and works at the limit.

    Holds the user's lock to the end of `tx`. Safe to call again with the same `device_id`. Raises
    DeviceBlocked (403), DeviceNotFound (404) of `replace_device_id`, DeviceLimitReached (409),
    RegistrationRateExceeded (429).
    """
    lock_user(tx, user_id)
    earlier: Registered | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    state = state_without_expired(tx, settings, origin, user_id, device_id)
    if state.is_blocked:
        raise DeviceBlocked(user_id, device_id)
    if state.known:
        return refreshed(tx, state.known, state.quota, state.at, new)
    refuse_above_daily_rate(tx, settings, user_id, state.at)
    evicted, used = _make_room(tx, origin, user_id, new, state)
    device = new_device(settings, user_id, device_id, new, state.at)
    queries.insert_device(tx, device)
    append(tx, origin, device_registered(device))
    replaced = new.replace_device_id is not None
    return Registered(device, state.quota.with_used(used + 1), True, evicted, replaced)


def state_without_expired(
    tx: Tx, settings: Settings, origin: Origin, user_id: int, device_id: str
) -> RegistrationState:
    """What a registration decides by, after what has expired is gone. The caller holds the user's lock.

    Rows are deleted before they are counted. To count those that have not expired would let the limit break:
    a heartbeat in flight may bring one back to life after the count.
    """
    state = registration_state(tx, user_id, device_id, settings.default_device_limit)
    while state.some_expired and remove_expired(tx, origin, user_id, state.at):
        state = registration_state(tx, user_id, device_id, settings.default_device_limit)
    return state


def remove_expired(tx: Tx, origin: Origin, user_id: int, at: datetime.datetime) -> int:
    """Delete up to 500 devices whose lease has run out: how many. The caller holds the user's lock."""
    gone = queries.expired_devices(tx, user_id, MOST_AT_ONCE)
    remove(tx, origin, "device.expired", at, gone)
    return len(gone)


def remove(tx: Tx, origin: Origin, event_type: str, at: datetime.datetime, gone: list[Device]) -> None:
    """Delete devices of one user and say of each why. The caller holds the user's lock."""
    if gone:
        queries.delete_devices(tx, gone[0].user_id, [device.device_id for device in gone])
        append(tx, origin, *(Happened(event_type, device.user_id, at, device.device_id) for device in gone))


def refreshed(tx: Tx, known: Device, quota: Quota, at: datetime.datetime, new: NewDevice) -> Registered:
    """Write over `known` what the caller gives anew. The caller holds the user's lock."""
    changes = changed_fields(known, new.given_fields())
    lease_seconds = new.lease_or(known.lease_seconds)
    device = queries.update_device(
        tx,
        known,
        {
            **changes,
            "last_seen_at": at,
            "lease_seconds": lease_seconds,
            "expires_at": _end_of_lease(at, lease_seconds),
            "revision": known.revision + 1 if changes else known.revision,
        },
    )
    return Registered(device, quota, created=False)


def refuse_above_daily_rate(tx: Tx, settings: Settings, user_id: int, at: datetime.datetime) -> None:
    """RegistrationRateExceeded (429) where the user had as many new devices in a day as there may be."""
    most = settings.max_registrations_per_day
    if not most:
        return
    oldest = nth_last_registration(tx, user_id, most, DAY_SECONDS)
    if oldest is not None:
        wait_seconds = (oldest - at).total_seconds() + DAY_SECONDS
        raise RegistrationRateExceeded(user_id, most, retry_after_seconds=max(1, math.ceil(wait_seconds)))


def _make_room(
    tx: Tx, origin: Origin, user_id: int, new: NewDevice, state: RegistrationState
) -> tuple[list[Device], int]:
    """Remove what the caller gives up for the new device. The evicted devices, and how many are left.

    Nothing is removed unless there is room afterwards: the refusal rolls back.
    """
    limit, used = state.quota.limit, state.quota.used
    if new.replace_device_id is not None:
        replaced = queries.find_device(tx, user_id, new.replace_device_id)
        if replaced is None:
            raise DeviceNotFound(user_id, new.replace_device_id)
        remove(tx, origin, "device.replaced", state.at, [replaced])
        used -= 1
    too_many = used - limit + 1
    evicted: list[Device] = []
    if too_many > 0 and new.on_limit != "reject" and limit > 0:
        evicted = queries.first_to_evict(tx, user_id, new.on_limit, too_many)
        remove(tx, origin, "device.evicted", state.at, evicted)
        used -= len(evicted)
    if used >= limit:
        raise DeviceLimitReached(user_id, limit=limit, used=state.quota.used)
    return evicted, used


def new_device(
    settings: Settings, user_id: int, device_id: str, new: NewDevice, at: datetime.datetime
) -> Device:
    """The device as it is first registered."""
    lease_seconds = new.lease_or(settings.default_lease_seconds)
    return Device.model_construct(
        **new.descriptive_fields(),
        user_id=user_id,
        device_id=device_id,
        registered_at=at,
        last_seen_at=at,
        lease_seconds=lease_seconds,
        expires_at=_end_of_lease(at, lease_seconds),
        revision=1,
    )


def _end_of_lease(at: datetime.datetime, lease_seconds: int | None) -> datetime.datetime | None:
    return None if lease_seconds is None else at + datetime.timedelta(seconds=lease_seconds)


def device_registered(device: Device) -> Happened:
    """The event of its registration."""
    described = {name: value for name, value in device.descriptive_fields().items() if value is not None}
    return Happened("device.registered", device.user_id, device.registered_at, device.device_id, described)


def read_device(tx: Tx, user_id: int, device_id: str) -> Device:
    """The device. Takes no lock. Raises DeviceNotFound (404), also where its lease has run out."""
    known = queries.find_device(tx, user_id, device_id)
    if known is None:
        raise DeviceNotFound(user_id, device_id)
    return known


def list_devices(
    tx: Tx, settings: Settings, user_id: int, after: tuple[datetime.datetime, str] | None, limit: int
) -> tuple[list[Device], Quota]:
    """Up to `limit` devices, oldest first, and the quota. Takes no lock; a stranger has no devices."""
    page = queries.list_devices(tx, user_id, after, limit)
    return page, read_quota(tx, user_id, settings.default_device_limit)
