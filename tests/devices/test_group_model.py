"""Groups decide as `service.register` does: random sequences through both, on two sets of users."""

import datetime
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Row, delete, func, insert, select, update

from app.db import Database, Tx
from app.devices import changes, service
from app.devices.group_service import Alone, Call, register_together
from app.devices.schemas import Device, NewDevice
from app.devices.service import Registered
from app.dialects import database_clock, seconds_from_now
from app.errors import AppError
from app.etags import Precondition
from app.migrations import migrate_embedded
from app.nodes import NOBODY
from app.origin import Origin
from app.quotas.service import set_limit
from app.settings import Settings, load_settings
from app.tables import device_registration_locks as locks
from app.tables import devices, events
from tests.services import ROOT_KEY

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]
GROUPS = 25
ANY = Precondition()
DEVICES = ("a", "b", "c", "d", "e")
LEASE_SECONDS = 3600
SHORTEST_LEASE = datetime.timedelta(seconds=60)
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "leases": {"default_lease_seconds": LEASE_SECONDS},
    "daily cap": {"max_registrations_per_day": 3},
}


@pytest.fixture(params=["server", "sqlite"])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "server":
        found: str = request.getfixturevalue("database_url")
        return found
    made = load_settings(database_url=f"sqlite:///{folder}/cupo.db", root_key=ROOT_KEY)
    migrate_embedded(made)
    return made.database_url.get_secret_value()


@pytest.fixture(params=VARIANTS)
def settings(request: pytest.FixtureRequest, url: str) -> Settings:
    return load_settings(
        database_url=url, root_key=ROOT_KEY, default_device_limit=2, **VARIANTS[request.param]
    )


@pytest.fixture
def two_sets(new_user: NewUser) -> tuple[list[int], list[int]]:
    """The last user of each is as large as a user may be, which no signed integer holds."""
    grouped, single = ([*(new_user() for _ in range(4)), 2**64 - new_user()] for _ in range(2))
    return grouped, single


class Chance:
    """What happens next, the same for both sets: a user is their place in a set."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a plan that can be repeated

    def group(self, users: int) -> list[tuple[int, str, dict[str, Any]]]:
        """Mostly of few users, so that calls of one meet in a group, and the same device twice."""
        some = self._random.sample(range(users), self._random.randint(1, 3))
        return [
            (self._random.choice(some), self._random.choice(DEVICES), self._fields())
            for _ in range(self._random.randint(1, 10))
        ]

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self._random.random() < 0.5:
            fields["name"] = self._random.choice(["one", "another", "one", None])
        if self._random.random() < 0.3:
            fields["metadata"] = self._random.choice([{"k": 1}, {"k": True}, {"k": 1, "l": "é"}, None])
        if self._random.random() < 0.3:
            fields["lease_seconds"] = self._random.choice([60, LEASE_SECONDS, None])
        return fields

    def interlude(self, users: int) -> Callable[[Tx, Settings, list[int]], object]:
        """What comes between two groups."""
        place, device = self._random.randrange(users), self._random.choice(DEVICES)
        limit = self._random.choice([0, 0, 1, 2, 3, 5, None])
        blocks = self._random.random() < 0.3
        origin = Origin("tests", "an-interlude")
        return self._random.choice(
            [
                *[lambda tx, _, ids: changes.revoke(tx, origin, ids[place], device, ANY, blocks)] * 4,
                lambda tx, _, ids: changes.allow(tx, origin, ids[place], device),
                lambda tx, settings, ids: set_limit(tx, settings, origin, ids[place], limit, ANY),
                *[lambda tx, _, ids: end_lease(tx, ids[place], device)] * 3,
                lambda tx, _, ids: tx.execute(delete(locks).where(locks.c.user_id == ids[place])),
                lambda tx, _, ids: move_in(tx, ids[place]),
            ]
        )


def end_lease(tx: Tx, user_id: int, device_id: str) -> None:
    ended = {"lease_seconds": LEASE_SECONDS, "expires_at": seconds_from_now(-1)}
    of_device = (devices.c.user_id == user_id, devices.c.device_id == device_id)
    tx.execute(update(devices).where(*of_device).values(ended))


def move_in(tx: Tx, user_id: int) -> None:
    """A device from elsewhere, above the limit or not: it has no event, and its user perhaps no lock row."""
    now = database_clock(tx)
    row = {"user_id": user_id, "registered_at": now, "last_seen_at": now, "revision": 3, "name": "moved"}
    known = select(func.count()).select_from(devices).where(devices.c.user_id == user_id)
    if tx.execute(known.where(devices.c.device_id == "e")).scalar() == 0:
        tx.execute(insert(devices), row | {"device_id": "e"})


def calls_of(group: list[tuple[int, str, dict[str, Any]]], users: list[int]) -> list[Call]:
    return [
        Call(Origin("tests", f"call-{number}"), users[place], device, NewDevice.model_validate(fields))
        for number, (place, device, fields) in enumerate(group)
    ]


def one_by_one(db: Database, settings: Settings, call: Call) -> Registered | AppError:
    try:
        return db.transact(service.register, settings, call.origin, call.user_id, call.device_id, call.new)
    except AppError as refusal:
        return refusal


def device_facts(device: Device) -> dict[str, Any]:
    """All but what must differ: whose it is, and when that was."""
    assert device.registered_at <= device.last_seen_at
    facts = dict(device)
    del facts["user_id"], facts["registered_at"], facts["last_seen_at"], facts["expires_at"]
    lasts = None if device.expires_at is None else device.expires_at - device.last_seen_at
    return facts | {
        "expires_after": "ended" if lasts is not None and lasts < SHORTEST_LEASE else lasts,
        "etag": device.etag,
        "is_new": device.registered_at == device.last_seen_at,
    }


def facts_of(outcome: Registered | AppError, user: int) -> dict[str, Any]:
    """The answer in every field but the user and times."""
    if isinstance(outcome, Registered):
        return {
            "device": device_facts(outcome.device),
            "quota": dict(outcome.quota),
            "remaining": outcome.quota.remaining,
            "created": outcome.created,
            "evicted": [device_facts(device) for device in outcome.evicted],
            "replaced": outcome.replaced,
        }
    told = f"{outcome.detail} {outcome.facts}"
    return {"refusal": type(outcome), "told": told.replace(str(user), "a user")}


def rows_of(tx: Tx, users: list[int]) -> list[Any]:
    """What is there of each user: devices, and the trail in the order in which it was written."""
    found: list[Any] = []
    for user in users:
        kept = tx.execute(select(devices).where(devices.c.user_id == user).order_by(devices.c.device_id))
        trail = tx.execute(select(events).where(events.c.user_id == user).order_by(events.c.id))
        found.append(
            (
                [device_facts(Device.model_construct(**row._asdict())) for row in kept],
                [event_facts(row) for row in trail],
            )
        )
    return found


def event_facts(row: Row[Any]) -> dict[str, Any]:
    told = ("type", "device_id", "actor", "reason", "request_id", "data")
    return {name: getattr(row, name) for name in told}


def kind_of(outcome: Registered | AppError | Alone) -> str:
    if isinstance(outcome, Registered):
        return "created" if outcome.created else "known"
    return type(outcome).__name__


def test_groups_decide_as_calls_one_by_one(
    settings: Settings,
    two_sets: tuple[list[int], list[int]],
) -> None:
    grouped, single = two_sets
    seen: Counter[str] = Counter()
    chance = Chance(seed=2)
    db = Database(settings)
    try:
        for number in range(GROUPS):
            for interlude in [chance.interlude(len(grouped)) for _ in range(3)]:
                for users in two_sets:
                    happen(db, interlude, settings, users)
            group = chance.group(len(grouped))
            calls = calls_of(group, grouped)
            decided = register_together(db, db.node_of(NOBODY), settings, calls)
            seen.update(map(kind_of, decided))
            outcomes = {place: one for place, one in enumerate(decided) if not isinstance(one, Alone)}
            alone = [place for place in range(len(calls)) if place not in outcomes]
            outcomes |= {place: one_by_one(db, settings, calls[place]) for place in alone}
            reference = calls_of(group, single)
            expected = {place: one_by_one(db, settings, reference[place]) for place in outcomes}
            for place in outcomes:
                found = facts_of(outcomes[place], calls[place].user_id)
                assert found == facts_of(expected[place], reference[place].user_id), (number, group[place])
            assert db.transact(rows_of, grouped) == db.transact(rows_of, single), (number, group)
    finally:
        db.close()
    capped = {"RegistrationRateExceeded"} if settings.max_registrations_per_day else set()
    # A sequence in which one of these is missing would show too little.
    assert seen.keys() == {"created", "known", "DeviceLimitReached", "DeviceBlocked", "Alone"} | capped


def happen(db: Database, work: Callable[..., object], settings: Settings, users: list[int]) -> None:
    """An interlude whose device is not there is none."""
    with suppress(AppError):
        db.transact(work, settings, users)
