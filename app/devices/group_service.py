"""Registering for many callers at once: the decisions of `service.register`, one transaction for all.

What is rare, and what would have to wait, is left to `service.register` (`Alone`).
"""

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.db import Database, Tx, is_multi_writer
from app.devices import queries, service
from app.devices.registration_queries import StateInGroup, known_devices, registration_states
from app.devices.schemas import Device, NewDevice
from app.devices.service import Registered
from app.errors import AppError, DeviceBlocked, DeviceLimitReached, RegistrationRateExceeded
from app.events.queries import append_of_several
from app.failures import Failure
from app.nodes import Node
from app.origin import Origin
from app.quotas.queries import insert_lock_rows, lock_users_if_free, quota_of
from app.recording import Call as Record
from app.recording import current_calls, on_behalf_of
from app.retries import RunFailed
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Call:
    """What `service.register` takes, of one caller. Such a call asks for no room: see `asks_for_room`."""

    origin: Origin
    user_id: int
    device_id: str
    new: NewDevice
    records: tuple[Record, ...] = field(default_factory=current_calls)

    @property
    def device(self) -> tuple[int, str]:
        return self.user_id, self.device_id

    @property
    def asks_for_room(self) -> bool:
        """Another device may have to go for it, which is more than a group decides."""
        return self.new.replace_device_id is not None or self.new.on_limit != "reject"


@dataclass(frozen=True, slots=True)
class Alone:
    """The call is to go through `service.register`.

    `failure` is what failed the group's run, if that is why; `uncertain_result`, if its COMMIT may have
    happened.
    """

    failure: Failure | None = None
    uncertain_result: Registered | None = None


Outcome = Registered | AppError | Alone


def register_together(db: Database, node: Node, settings: Settings, calls: Sequence[Call]) -> list[Outcome]:
    """What became of each call: Registered, which is committed, a refusal, or Alone.

    Waits for no user's lock. Where a run fails it is rolled back, and all of its calls go alone.
    """
    try:
        looked_at = db.attempt(node, refuse_without_lock, settings, calls)
    except RunFailed as failed:
        return [Alone(failed.failure)] * len(calls)
    undecided = [call for call, outcome in zip(calls, looked_at, strict=True) if outcome is None]
    for call, outcome in zip(calls, looked_at, strict=True):
        if isinstance(outcome, AppError):
            for record in call.records:
                record.attempts += 1  # of those who go on, the run that decides is the one which counts
    decided = iter(_decided_under_locks(db, node, settings, undecided))
    return [next(decided) if outcome is None else outcome for outcome in looked_at]


def _decided_under_locks(
    db: Database, node: Node, settings: Settings, calls: Sequence[Call]
) -> Sequence[Outcome]:
    if not calls:
        return []
    try:
        with on_behalf_of(*(record for call in calls for record in call.records)):
            return db.attempt(node, register_under_locks, settings, calls)
    except RunFailed as failed:
        outcomes = failed.result or [None] * len(calls)
        return [Alone(failed.failure, one if isinstance(one, Registered) else None) for one in outcomes]


def refuse_without_lock(tx: Tx, settings: Settings, calls: Sequence[Call]) -> list[Outcome | None]:
    """DeviceLimitReached for whom one instant shows at the limit, else None; makes the others' lock rows.

    A refusal needs no lock: it is right if the limit was reached at some instant of the call, and the
    statement's is one, since all that it looks at is of one snapshot of committed rows. A lease that has run
    out may free a slot, so the lock decides on such users. Where several nodes write, this one may be behind
    the others, and a lock that waits for nobody holds back nobody on them: there all calls go alone.
    """
    if is_multi_writer(tx):
        return [Alone()] * len(calls)
    _, states = registration_states(tx, [call.device for call in calls])
    outcomes: list[Outcome | None] = []
    without_lock_row = set()
    for call, state in zip(calls, states, strict=True):
        limit = settings.default_device_limit if state.own_limit is None else state.own_limit
        is_open = state.is_known or state.is_blocked or state.some_expired or state.used < limit
        if is_open or settings.max_registrations_per_day:  # which comes before the limit, see `register`
            outcomes.append(None)
            if not state.has_lock_row:
                without_lock_row.add(call.user_id)
        else:
            outcomes.append(DeviceLimitReached(call.user_id, limit=limit, used=state.used))
    insert_lock_rows(tx, sorted(without_lock_row))
    return outcomes


def register_under_locks(tx: Tx, settings: Settings, calls: Sequence[Call]) -> list[Outcome]:
    """Decide the calls in order, those of one user seeing each other. Holds the users' locks to the end.

    Who has a user whose lock is not free goes alone, and waits for it without the others.
    """
    locked = lock_users_if_free(tx, {call.user_id for call in calls})
    asked = [call.device for call in calls if call.user_id in locked]
    if not asked:
        return [Alone()] * len(calls)
    at, found = registration_states(tx, asked)
    known = known_devices(tx, [device for device, state in zip(asked, found, strict=True) if state.is_known])
    group = _Group(tx, settings, at, {(device.user_id, device.device_id): device for device in known})
    states = iter(found)
    outcomes = [group.decide(call, next(states)) if call.user_id in locked else Alone() for call in calls]
    group.write()
    return outcomes


@dataclass(slots=True)
class _Group:
    """What the decisions of a group go by beside the rows, and what is to be written of them at the end."""

    tx: Tx
    settings: Settings
    at: datetime.datetime
    known: dict[tuple[int, str], Device]
    added: Counter[int] = field(default_factory=Counter)
    decided: set[tuple[int, str]] = field(default_factory=set)
    registered: list[tuple[Origin, Device]] = field(default_factory=list)

    def decide(self, call: Call, state: StateInGroup) -> Outcome:
        """As `service.register` would, after the calls that were decided before."""
        if state.some_expired or call.device in self.decided:
            return Alone()  # what `state` tells is not, or no longer, what is to be decided by
        if state.is_blocked:
            return DeviceBlocked(*call.device)
        used = state.used + self.added[call.user_id]
        default_limit = self.settings.default_device_limit
        if state.is_known:
            quota = quota_of(used, state.own_limit, state.quota_revision, default_limit)
            self.decided.add(call.device)
            return service.refreshed(self.tx, self.known[call.device], quota, self.at, call.new)
        if self.settings.max_registrations_per_day and self.added[call.user_id]:
            return Alone()  # the events of those before it count as well, and are not written yet
        try:
            service.refuse_above_daily_rate(self.tx, self.settings, call.user_id, self.at)
        except RegistrationRateExceeded as refusal:
            return refusal
        quota = quota_of(used + 1, state.own_limit, state.quota_revision, default_limit)
        if used >= quota.limit:
            return DeviceLimitReached(call.user_id, limit=quota.limit, used=used)
        device = service.new_device(self.settings, *call.device, call.new, self.at)
        self.decided.add(call.device)
        self.added[call.user_id] += 1
        self.registered.append((call.origin, device))
        return Registered(device, quota, created=True)

    def write(self) -> None:
        """Insert what is new, and its events, by one statement each."""
        queries.insert_devices_of_several(self.tx, [device for _, device in self.registered])
        append_of_several(
            self.tx, [(origin, service.device_registered(device)) for origin, device in self.registered]
        )
