"""Registering for many callers at once: the decisions of `service.register`, one transaction for all.

What is rare, and what would have to wait, is left to `service.register` (`Alone`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.db import Database, RunFailed, Tx, is_multi_writer
from app.devices import queries, service
from app.devices.registration_queries import RegistrationState, registration_states
from app.devices.schemas import Device, NewDevice
from app.devices.service import Registered
from app.errors import AppError, DeviceBlocked, DeviceLimitReached
from app.events.queries import append_of_several
from app.origin import Origin
from app.quotas.queries import insert_lock_rows, lock_users_if_free
from app.recording import on_behalf_of
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Call:
    """What `service.register` takes, of one caller. Such a call asks for no room: see `asks_for_room`."""

    origin: Origin
    user_id: int
    device_id: str
    new: NewDevice

    @property
    def asks_for_room(self) -> bool:
        """Another device may have to go for it, which is more than a group decides."""
        return self.new.replace_device_id is not None or self.new.on_limit != "reject"


@dataclass(frozen=True, slots=True)
class Alone:
    """The call is to go through `service.register`. `uncertain_result`, if its COMMIT may have happened."""

    uncertain_result: Registered | None = None


Outcome = Registered | AppError | Alone


def register_together(db: Database, settings: Settings, calls: Sequence[Call]) -> list[Outcome]:
    """What became of each call: Registered, which is committed, a refusal, or Alone.

    Waits for no user's lock. Where a run fails it is rolled back, and all of its calls go alone.
    """
    try:
        with on_behalf_of():  # it is no run of theirs, which the lines of the log count
            looked_at = db.attempt(refuse_without_lock, settings, calls)
    except RunFailed:
        return [Alone()] * len(calls)
    undecided = [call for call, outcome in zip(calls, looked_at, strict=True) if outcome is None]
    decided = iter(_decided_under_locks(db, settings, undecided))
    return [next(decided) if outcome is None else outcome for outcome in looked_at]


def _decided_under_locks(db: Database, settings: Settings, calls: Sequence[Call]) -> Sequence[Outcome]:
    if not calls:
        return []
    try:
        return db.attempt(register_under_locks, settings, calls)
    except RunFailed as failed:
        if failed.result is None:
            return [Alone()] * len(calls)
        return [Alone(one if isinstance(one, Registered) else None) for one in failed.result]


def refuse_without_lock(tx: Tx, settings: Settings, calls: Sequence[Call]) -> list[Outcome | None]:
    """DeviceLimitReached for whom one instant shows at the limit, else None; makes the others' lock rows.

    A refusal needs no lock: it is right if the limit was reached at some instant of the call, and the
    statement's is one, since all that it looks at is of one snapshot of committed rows. A lease that has run
    out may free a slot, so the lock decides on such users. Where several nodes write, this one may be behind
    the others, and a lock that waits for nobody holds back nobody on them: there all calls go alone.
    """
    if is_multi_writer(tx):
        return [Alone()] * len(calls)
    outcomes: list[Outcome | None] = []
    without_lock_row = set()
    for call, state in zip(calls, _states(tx, settings, calls), strict=True):
        if state.known or state.is_blocked or state.some_expired or state.quota.used < state.quota.limit:
            outcomes.append(None)
            if not state.has_lock_row:
                without_lock_row.add(call.user_id)
        else:
            outcomes.append(_limit_reached(call, state.quota.limit, state.quota.used))
    insert_lock_rows(tx, sorted(without_lock_row))
    return outcomes


@dataclass(slots=True)
class _Group:
    """What the calls that were decided before have changed, and what is to be written of them at the end."""

    used: dict[int, int] = field(default_factory=dict)
    touched: set[tuple[int, str]] = field(default_factory=set)
    registered: list[tuple[Origin, Device]] = field(default_factory=list)


def register_under_locks(tx: Tx, settings: Settings, calls: Sequence[Call]) -> list[Outcome]:
    """Decide the calls in order, those of one user seeing each other. Holds the users' locks to the end.

    Who has a user whose lock is not free goes alone, and waits for it without the others.
    """
    locked = lock_users_if_free(tx, {call.user_id for call in calls})
    decided = [call for call in calls if call.user_id in locked]
    states = iter(_states(tx, settings, decided))
    group = _Group()
    outcomes = [
        _decide(tx, settings, call, next(states), group) if call.user_id in locked else Alone()
        for call in calls
    ]
    queries.insert_devices(tx, *(device for _, device in group.registered))
    append_of_several(
        tx, [(origin, service.device_registered(device)) for origin, device in group.registered]
    )
    return outcomes


def _states(tx: Tx, settings: Settings, calls: Sequence[Call]) -> list[RegistrationState]:
    asked = [(call.user_id, call.device_id) for call in calls]
    return registration_states(tx, asked, settings.default_device_limit)


def _decide(tx: Tx, settings: Settings, call: Call, state: RegistrationState, group: _Group) -> Outcome:
    device = (call.user_id, call.device_id)
    if state.some_expired or device in group.touched:
        return Alone()  # `state` is not, or no longer, what the call is to be decided by
    if state.is_blocked:
        return DeviceBlocked(*device)
    if state.known:
        group.touched.add(device)
        quota = state.quota.with_used(group.used.get(call.user_id, state.quota.used))
        return service.refreshed(tx, state.known, quota, state.at, call.new)
    used = group.used.setdefault(call.user_id, state.quota.used)
    if used >= state.quota.limit:
        return _limit_reached(call, state.quota.limit, used)
    if settings.max_registrations_per_day and used > state.quota.used:
        return Alone()  # the events of this group, which count as well, are not written yet
    try:
        service.refuse_above_daily_rate(tx, settings, call.user_id, state.at)
    except AppError as refusal:
        return refusal
    group.touched.add(device)
    group.used[call.user_id] = used + 1
    new = service.new_device(settings, *device, call.new, state.at)
    group.registered.append((call.origin, new))
    return Registered(new, state.quota.with_used(used + 1), created=True)


def _limit_reached(call: Call, limit: int, used: int) -> DeviceLimitReached:
    return DeviceLimitReached(call.user_id, limit=limit, used=used)
