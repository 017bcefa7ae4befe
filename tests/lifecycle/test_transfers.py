"""Devices that move between two users, under both locks."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.callers import Call, at_once, register, revoke, statuses
from tests.lifecycle.rows import put_devices, put_own_limit
from tests.lifecycle.trail import devices_of, replayed, types_of
from tests.servers import Server, counted_deadlocks
from tests.services import Service, running_service
from tests.watching import watched

pytestmark = pytest.mark.locking

DEVICES = 100
LIMIT = 110
# All 200 wait for the same two locks, one after the other; a busy machine must not be taken for a deadlock.
PATIENCE: Any = {"database_pool_wait_seconds": 30, "lock_budget_seconds": 30, "lock_wait_seconds": 30}


def transfer(user: int, device_id: str, to: int) -> Call:
    return Call("POST", f"/v1/users/{user}/devices/{device_id}/transfer", {"to_user_id": str(to)})


def devices_called(letter: str) -> list[str]:
    return [f"{letter}-{number}" for number in range(DEVICES)]


@pytest.fixture
def two(auditor: Engine, new_user: Callable[[], int]) -> tuple[int, int]:
    """Two users of 100 devices each, who may have 110; neither has a lock row yet."""
    users = new_user(), new_user()
    for user, letter in zip(users, "ab", strict=True):
        put_own_limit(auditor, user, LIMIT)
        put_devices(auditor, user, devices_called(letter))
    return users


def there_and_back(one: int, two: int) -> list[Call]:
    there = [transfer(one, device, two) for device in devices_called("a")]
    back = [transfer(two, device, one) for device in devices_called("b")]
    return [call for pair in zip(there, back, strict=True) for call in pair]


def test_200_transfers_between_two_users_at_once_deadlock_nobody_and_both_limits_hold(
    server: Server, database_url: str, auditor: Engine, two: tuple[int, int], folder: Path
) -> None:
    before = counted_deadlocks(server)
    with (
        running_service(database_url, folder, **PATIENCE) as service,
        watched(auditor, list(two), LIMIT) as over,
    ):
        answers = at_once(service, there_and_back(*two))
    assert over == []
    assert counted_deadlocks(server) == before
    assert set(statuses(answers)) <= {200, 409}, [answer.text for answer in answers if answer.is_server_error]
    moved = Counter(answer.json()["device"]["user_id"] for answer in answers if answer.status_code == 200)
    assert moved[str(two[0])] + moved[str(two[1])] >= 2 * (LIMIT - DEVICES)
    for user, letter in zip(two, "ab", strict=True):
        replay = replayed(auditor, user, LIMIT, moved_in=devices_called(letter))
        assert replay.types == {"device.transferred": moved.total()}
    assert len(devices_of(auditor, two[0])) == DEVICES + moved[str(two[0])] - moved[str(two[1])]


def test_the_same_transfers_deadlock_once_the_order_of_the_locks_is_taken_out(
    server: Server, database_url: str, two: tuple[int, int], folder: Path
) -> None:
    """What the test above would say of a service that locks the sender first."""
    before = counted_deadlocks(server)
    with running_service(database_url, folder, application="tests.lifecycle.unsorted:app") as unsorted:
        at_once(unsorted, there_and_back(*two)[:40])
    assert counted_deadlocks(server) > before


def test_the_receiver_s_last_slot_goes_to_one_of_a_registration_and_a_transfer(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    for _ in range(10):
        sender, receiver = new_user(), new_user()
        at_once(service, [register(sender, "moving"), register(receiver, "there")])
        answers = at_once(service, [transfer(sender, "moving", receiver), register(receiver, "new")])
        assert sorted(answer.status_code for answer in answers) in ([200, 409], [201, 409])
        assert replayed(auditor, receiver, 2).devices > {"there"}
        assert len(devices_of(auditor, receiver)) == 2
        replayed(auditor, sender, 2)


def test_of_a_transfer_and_a_revocation_of_one_device_at_once_one_finds_it_gone(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    for _ in range(10):
        sender, receiver = new_user(), new_user()
        at_once(service, [register(sender, "moving")])
        moved, revoked = at_once(service, [transfer(sender, "moving", receiver), revoke(sender, "moving")])
        assert (moved.status_code, revoked.status_code) in {(200, 404), (404, 204)}
        assert devices_of(auditor, sender) == []
        assert devices_of(auditor, receiver) == (["moving"] if moved.status_code == 200 else [])
        replayed(auditor, sender, 2)
        replayed(auditor, receiver, 2)


def test_a_transfer_that_is_refused_leaves_both_users_as_they_were(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    sender, full, holder = new_user(), new_user(), new_user()
    at_once(service, [register(sender, "a"), register(full, "b"), register(full, "c"), register(holder, "a")])
    to_full, to_holder, to_self = at_once(
        service, [transfer(sender, "a", to) for to in (full, holder, sender)]
    )
    assert (to_full.status_code, to_full.json()["code"]) == (409, "device_limit_reached")
    assert {answer.json()["code"] for answer in (to_holder, to_self)} == {"device_already_registered"}
    assert [devices_of(auditor, user) for user in (sender, full, holder)] == [["a"], ["b", "c"], ["a"]]
    assert types_of(auditor, sender) == ["device.registered"]
