"""The limit under calls that arrive at once, on a real server, with real commits."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.callers import Call, at_once, by_many, in_rounds, one_by_one, register, revoke, statuses
from tests.servers import Server, counted_deadlocks
from tests.services import PATIENT, Service, running_service
from tests.watching import watched

pytestmark = pytest.mark.locking

LIMIT = 2


def devices_of(auditor: Engine, user_id: int) -> list[str]:
    with auditor.connect() as connection:
        query = text("SELECT device_id FROM devices WHERE user_id = :user ORDER BY device_id")
        return list(connection.execute(query, {"user": user_id}).scalars())


def move_in(auditor: Engine, user_id: int, devices: int) -> None:
    """The user's devices come from elsewhere: they are there, and no lock row is."""
    with auditor.connect() as connection:
        for number in range(devices):
            connection.execute(
                text(
                    "INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision)"
                    " VALUES (:user, :device, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 1)"
                ),
                {"user": user_id, "device": f"moved-in-{number}"},
            )


def devices(user_id: int, number: int) -> list[Call]:
    return [register(user_id, f"device-{one}") for one in range(number)]


def test_of_10_calls_at_once_exactly_2_get_the_2_slots(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    answers = at_once(service, devices(user, 10))
    assert statuses(answers) == {201: 2, 409: 8}
    winners = sorted(answer.json()["device"]["device_id"] for answer in answers if answer.status_code == 201)
    assert devices_of(auditor, user) == winners
    for refusal in (answer for answer in answers if answer.status_code == 409):
        assert refusal.headers["content-type"] == "application/problem+json"
        assert "retry-after" not in refusal.headers
        assert refusal.json()["code"] == "device_limit_reached"
        assert (refusal.json()["limit"], refusal.json()["used"]) == (2, 2)


@pytest.mark.parametrize(("workers", "group_size"), [(1, 1), (4, 64)], ids=["alone", "in groups"])
def test_the_same_race_passes_the_limit_once_the_lock_is_taken_out(
    workers: int,
    group_size: int,
    database_url: str,
    auditor: Engine,
    new_user: Callable[[], int],
    folder: Path,
) -> None:
    """What these tests would say of a service without `FOR UPDATE`: that it breaks."""
    users = [new_user() for _ in range(60)]
    unlocked: dict[str, Any] = {"application": "tests.lockless:app", "default_device_limit": LIMIT, **PATIENT}
    with running_service(
        database_url, folder, workers=workers, group_size=group_size, **unlocked
    ) as lockless:

        def has_passed_it(user: int) -> bool:
            at_once(lockless, devices(user, 40))
            return len(devices_of(auditor, user)) > LIMIT

        assert any(map(has_passed_it, users))


def test_first_registrations_of_20_new_users_50_at_once_are_exact_and_deadlock_nobody(
    server: Server, service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    users = [new_user() for _ in range(20)]
    before = counted_deadlocks(server)
    rounds = in_rounds(service, [devices(user, 50) for user in users])
    assert [statuses(answers) for answers in rounds] == [{201: 2, 409: 48}] * 20
    assert [len(devices_of(auditor, user)) for user in users] == [2] * 20
    assert counted_deadlocks(server) == before


def test_20_full_users_that_moved_in_without_lock_row_refuse_40_at_once_and_deadlock_nobody(
    server: Server, service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    users = [new_user() for _ in range(20)]
    for user in users:
        move_in(auditor, user, devices=LIMIT)
    before = counted_deadlocks(server)
    rounds = in_rounds(service, [devices(user, 40) for user in users])
    assert [statuses(answers) for answers in rounds] == [{409: 40}] * 20
    assert [devices_of(auditor, user) for user in users] == [["moved-in-0", "moved-in-1"]] * 20
    assert counted_deadlocks(server) == before


def test_the_last_slot_goes_to_one_of_50_at_once(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    assert statuses(at_once(service, [register(user, "first")])) == {201: 1}
    answers = at_once(service, devices(user, 50))
    assert statuses(answers) == {201: 1, 409: 49}
    assert len(devices_of(auditor, user)) == LIMIT


def test_of_20_identical_calls_at_once_one_registers_and_19_find_the_device(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    answers = at_once(service, [register(user, "the-same")] * 20)
    assert statuses(answers) == {201: 1, 200: 19}
    assert {answer.json()["quota"]["used"] for answer in answers} == {1}
    assert devices_of(auditor, user) == ["the-same"]


def test_a_slot_that_was_revoked_is_free_at_once(service: Service, new_user: Callable[[], int]) -> None:
    user = new_user()
    free_a_slot = [
        register(user, "c"),
        revoke(user, "b"),
        register(user, "c"),
        revoke(user, "c"),
        register(user, "b"),
    ]
    answers = one_by_one(service, [register(user, "a"), register(user, "b"), *free_a_slot * 20])
    assert [answer.status_code for answer in answers] == [201, 201] + [409, 204, 201, 204, 201] * 20


def test_a_device_that_is_known_registers_again_at_the_limit(
    service: Service, new_user: Callable[[], int]
) -> None:
    user = new_user()
    first = at_once(service, [register(user, "a"), register(user, "b")])
    assert statuses(first) == {201: 2}
    again = at_once(service, [register(user, "a")] * 5 + [register(user, "c")] * 5)
    assert statuses(again) == {200: 5, 409: 5}


def test_2000_mixed_calls_on_4_workers_never_pass_the_limit_at_any_moment(
    database_url: str, auditor: Engine, new_user: Callable[[], int], folder: Path
) -> None:
    users = [new_user() for _ in range(5)]
    plan = random.Random(1)  # noqa: S311 - a plan that can be repeated
    calls = [
        plan.choice((register, register, revoke))(plan.choice(users), f"device-{plan.randrange(12)}")
        for _ in range(2000)
    ]
    with (
        running_service(database_url, folder, workers=4, default_device_limit=LIMIT, **PATIENT) as service,
        watched(auditor, users, LIMIT) as over,
    ):
        answers = by_many(service, calls, callers=60)
    assert over == []
    assert set(statuses(answers)) == {200, 201, 204, 404, 409}
    registered: Counter[int] = Counter()
    for call, answer in zip(calls, answers, strict=True):
        user = int(call.path.split("/")[3])
        registered[user] += {201: 1, 204: -1}.get(answer.status_code, 0)
    assert {user: len(devices_of(auditor, user)) for user in users} == {
        user: registered[user] for user in users
    }
