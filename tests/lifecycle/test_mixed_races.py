"""All that changes which devices count, at once on one user: the limit holds, the trail tells all of it."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from app.imports.run import Decided, Import, steps
from app.imports.service import Outcome, OverLimit
from app.settings import load_settings
from tests.callers import Call, by_many, register, revoke, statuses
from tests.lifecycle.rows import put_devices, put_own_limit, run
from tests.lifecycle.steps import database
from tests.lifecycle.test_transfers import transfer
from tests.lifecycle.trail import devices_of, replayed
from tests.services import ROOT_KEY, running_service
from tests.watching import watched

pytestmark = [pytest.mark.locking, pytest.mark.slow, pytest.mark.timeout(300)]

CALLS = 2000
DEFAULT_LIMIT = 4
LIMITS = range(1, 7)
PATIENCE: Any = {"database_pool_wait_seconds": 30, "lock_budget_seconds": 30}
GIVEN = [f"given-{number}" for number in range(400)]


class Plan:
    """What callers do to one user, at random, the same each time; a friend has devices to give."""

    def __init__(self, user: int, friend: int) -> None:
        self._user, self._friend = user, friend
        self._random = random.Random(4)  # noqa: S311 - a plan that can be repeated
        self._given = iter(GIVEN)
        self._kinds = [
            *[self.register_one] * 3,
            self.replace_one,
            lambda: self.register_one(on_limit="evict_oldest"),
            lambda: self.register_one(on_limit="evict_least_recently_seen"),
            self.transfer_in,
            self.transfer_out,
            self.heartbeat,
            self.revoke_one,
            self.set_limit,
        ]

    def calls(self) -> list[Call]:
        return [self._random.choice(self._kinds)() for _ in range(CALLS)]

    def _device(self) -> str:
        return f"device-{self._random.randrange(12)}"

    def register_one(self, **fields: object) -> Call:
        lease_seconds = self._random.choice((None, 3600))
        return register(self._user, self._device(), lease_seconds=lease_seconds, **fields)

    def replace_one(self) -> Call:
        return self.register_one(replace_device_id=self._device())

    def transfer_in(self) -> Call:
        return transfer(self._friend, next(self._given), self._user)

    def transfer_out(self) -> Call:
        return transfer(self._user, self._random.choice([self._device(), *GIVEN[:9]]), self._friend)

    def heartbeat(self) -> Call:
        return Call("POST", f"/v1/users/{self._user}/devices/{self._device()}/heartbeat")

    def revoke_one(self) -> Call:
        return revoke(self._user, self._device())

    def set_limit(self) -> Call:
        if self._random.random() < 0.1:
            return Call("DELETE", f"/v1/users/{self._user}/quota")
        return Call("PUT", f"/v1/users/{self._user}/quota", {"limit": self._random.choice(LIMITS)})


@contextmanager
def imports_and_leases_that_end(url: str, auditor: Engine, user: int) -> Iterator[Counter[Outcome]]:
    """Beside the callers: batches of an import, whose outcomes are counted, and leases that run out."""
    outcomes: Counter[Outcome] = Counter()
    done = threading.Event()
    plan = random.Random(5)  # noqa: S311 - likewise
    settings = load_settings(database_url=url, root_key=ROOT_KEY, default_device_limit=DEFAULT_LIMIT)
    moving_in = Import(settings, OverLimit.SKIP, dry_run=False)

    def work() -> None:
        with database(url) as db:
            while not done.is_set():
                lines = [f"{user},device-{number}" for number in plan.sample(range(12), 2)]
                for step in steps(db, moving_in, StringIO("\n".join(["user_id,device_id", *lines]))):
                    if isinstance(step, Decided):
                        outcomes.update(one.outcome for one in step.decisions)
                run(
                    auditor,
                    "UPDATE devices SET expires_at = UTC_TIMESTAMP(6)"
                    " WHERE user_id = :user AND device_id = :device AND lease_seconds IS NOT NULL",
                    user=user,
                    device=f"device-{plan.randrange(12)}",
                )

    rival = threading.Thread(target=work)
    rival.start()
    try:
        yield outcomes
    finally:
        done.set()
        rival.join()


def test_2000_calls_of_all_kinds_and_an_import_on_one_user_with_4_workers(
    database_url: str, auditor: Engine, new_user: Callable[[], int], folder: Path
) -> None:
    user, friend = new_user(), new_user()
    put_devices(auditor, friend, GIVEN)
    put_own_limit(auditor, friend, 10_000)
    calls = Plan(user, friend).calls()
    with (
        running_service(
            database_url, folder, workers=4, default_device_limit=DEFAULT_LIMIT, **PATIENCE
        ) as service,
        watched(auditor, [user], max(LIMITS)) as over,
        imports_and_leases_that_end(database_url, auditor, user) as imported,
    ):
        answers = by_many(service, calls, callers=60)
    assert over == []
    # A heartbeat may find no lease that has run out: then there is no 410.
    assert {200, 201, 204, 404, 409} <= set(statuses(answers)) <= {200, 201, 204, 404, 409, 410}
    replay = replayed(auditor, user, DEFAULT_LIMIT)
    told = told_by(calls, answers, imported)
    assert {name: replay.types[name] for name in told} == told
    assert set(replay.types) == {*told, "device.expired", "quota.changed"}
    replayed(auditor, friend, 10_000, moved_in=GIVEN)
    assert len(devices_of(auditor, user)) <= max(LIMITS)


def told_by(calls: list[Call], answers: list[httpx.Response], imported: Counter[Outcome]) -> Counter[str]:
    """How many events of each type the answers speak of; an answer says nothing of what has expired."""
    told: Counter[str] = Counter({"device.registered": imported[Outcome.IMPORTED]})
    for call, answer in zip(calls, answers, strict=True):
        match answer.status_code:
            case 201:
                told["device.registered"] += 1
                told["device.evicted"] += len(answer.json()["evicted"])
                told["device.replaced"] += "replace_device_id" in dict(call.json)  # type: ignore[call-overload] # a registration's is
            case 204:
                told["device.revoked"] += 1
            case 200 if call.path.endswith("/transfer"):
                told["device.transferred"] += 1
    return told
