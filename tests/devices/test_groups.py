"""Calls that meet in one process: who shares a transaction, who waits for whom, and who is turned away."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, text

from app.db import Database
from app.devices import groups
from app.devices.service import Registered
from app.errors import DeviceLimitReached, Overloaded
from tests.devices.scenes import LOCKS, LOOKS, Scene, all_of, one_row_and_event_each, registered, scene_at
from tests.lifecycle.rows import let_lease_end, put_devices
from tests.lifecycle.trail import devices_of
from tests.test_ending import locked
from tests.use_cases import LIMIT, register, revoke

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]


@pytest.fixture
def users(db: Database, new_user: NewUser) -> list[int]:
    """Have a lock row, and no device."""
    found = [new_user() for _ in range(8)]
    for user in found:
        db.transact(register, user, "gone")
        db.transact(revoke, user, "gone")
    return found


@pytest.mark.usefixtures("long_turns")
def test_those_who_come_while_one_is_served_share_their_statements(
    scene: Scene, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(8)]
    results = asyncio.run(scene.together(*((user, f"of-{user}") for user in users)))
    assert registered(results) == [f"of-{user}" for user in users]
    assert [one.device.user_id for one in results if isinstance(one, Registered)] == users
    assert scene.sent() == [
        *("INSERT EVENTS", "COMMIT"),  # of the one that was served
        *("LOOK", "INSERT LOCK ROWS", "COMMIT"),
        *("LOCK THOSE FREE", "LOOK", "INSERT DEVICES", "INSERT EVENTS", "COMMIT"),
    ]
    for user in users:
        one_row_and_event_each(auditor, [user], f"of-{user}")


@pytest.mark.usefixtures("long_turns")
def test_a_group_takes_no_more_than_it_may(database_url: str, new_user: NewUser) -> None:
    with scene_at(database_url, new_user, group_size=3) as scene:
        registered(asyncio.run(scene.together(*((new_user(), "a") for _ in range(6)))))
    assert scene.sent().count("INSERT DEVICES") == 2


@pytest.mark.usefixtures("long_turns")
@pytest.mark.parametrize("alone", [{"group_size": 1}, {"multi_writer": "on"}], ids=str)
def test_there_are_none_where_each_is_to_go_alone_and_nobody_waits_for_others(
    alone: dict[str, object], database_url: str, new_user: NewUser, auditor: Engine
) -> None:
    users = [new_user() for _ in range(5)]

    async def meet() -> None:
        async with scene.while_another_is_served():
            registered(await all_of([scene.call(user) for user in users]))

    with scene_at(database_url, new_user, **alone) as scene:
        asyncio.run(meet())
        assert not any(LOOKS in statement for statement in scene.proxy.statements)
    one_row_and_event_each(auditor, users)


def test_whose_user_is_locked_waits_without_the_others(
    scene: Scene, auditor: Engine, users: list[int]
) -> None:
    async def meet() -> None:
        with locked(auditor, users[0]) as let_go:
            async with scene.while_another_is_served():
                waiting = scene.call(users[0])
                others = [scene.call(user) for user in users[1:]]
            registered(await all_of(others))
            assert not waiting.done()
            let_go()
            registered(await all_of([waiting]))

    asyncio.run(meet())
    for user in users:
        assert devices_of(auditor, user) == ["a"]


def test_one_that_waits_for_a_lock_holds_nobody_up_behind_it(
    scene: Scene, auditor: Engine, users: list[int]
) -> None:
    """It came first and went alone: nobody could know that it would wait."""

    async def meet() -> float:
        with locked(auditor, users[0]) as let_go:
            waiting = scene.call(users[0])
            await asyncio.sleep(0)
            began = time.monotonic()
            registered(await all_of([scene.call(user) for user in users[1:]]))
            took_seconds = time.monotonic() - began
            assert not waiting.done()
            let_go()
            registered(await all_of([waiting]))
        return took_seconds

    assert groups.LONGEST_TURN_SECONDS < asyncio.run(meet()) < 2


def test_another_s_uncommitted_lock_row_holds_up_for_no_longer_than_a_second(
    scene: Scene, auditor: Engine, new_user: NewUser
) -> None:
    """The shortest lock wait that InnoDB has; after it, each goes alone."""
    users = [new_user() for _ in range(4)]
    query = "INSERT INTO device_registration_locks (user_id, version, created_at) VALUES (:user, 0, NOW(6))"

    async def meet() -> None:
        with auditor.connect() as rival:
            rival.exec_driver_sql("BEGIN")
            rival.execute(text(query), {"user": users[0]})
            async with scene.while_another_is_served():
                waiting = scene.call(users[0])
                others = [scene.call(user) for user in users[1:]]
            began = time.monotonic()
            registered(await all_of(others))
            assert time.monotonic() - began < 3
            assert not waiting.done()
            rival.exec_driver_sql("ROLLBACK")
            registered(await all_of([waiting]))

    asyncio.run(meet())
    one_row_and_event_each(auditor, users)


@pytest.mark.usefixtures("long_turns")
def test_who_is_full_is_refused_without_a_lock(scene: Scene, auditor: Engine, users: list[int]) -> None:
    put_devices(auditor, users[0], ["b", "c"])
    with locked(auditor, users[0]):
        first, second = asyncio.run(scene.together((users[0], "a"), (users[0], "d")))
    assert isinstance(first, DeviceLimitReached)
    assert isinstance(second, DeviceLimitReached)
    assert (first.facts["limit"], first.facts["used"]) == (LIMIT, LIMIT)
    assert scene.sent() == ["INSERT EVENTS", "COMMIT", "LOOK", "COMMIT"]


@pytest.mark.usefixtures("long_turns")
def test_who_is_full_of_what_has_expired_is_not_refused(
    scene: Scene, auditor: Engine, users: list[int]
) -> None:
    put_devices(auditor, users[0], ["b", "c"])
    let_lease_end(auditor, users[0], "b")
    registered(asyncio.run(scene.together((users[0], "a"), (users[1], "a"))))
    assert devices_of(auditor, users[0]) == ["a", "c"]


def test_a_device_that_is_there_is_never_refused_while_the_other_slot_changes_hands(
    scene: Scene, db: Database, users: list[int]
) -> None:
    """At each instant the user has `here` and one device or none: whatever a refusal looks at must be one."""
    user = users[0]
    db.transact(register, user, "here")
    ended = threading.Event()

    def swap() -> int:
        swaps = 0
        while not ended.is_set():
            for device in ("b", "c"):
                db.transact(register, user, device)
                db.transact(revoke, user, device)
            swaps += 1
        return swaps

    async def look() -> None:
        swapping = asyncio.create_task(asyncio.to_thread(swap))
        try:
            for _ in range(60):
                calls = [scene.call(one, "here") for one in (users[1], user, user, *users[2:4])]
                results = await all_of(calls)
                assert all(isinstance(one, Registered) for one in results), results
                known = [one for one in results[1:3] if isinstance(one, Registered)]
                assert not any(one.created for one in known)
        finally:
            ended.set()
            assert await swapping > 5, "hardly anything was swapped"

    asyncio.run(look())


@pytest.mark.usefixtures("long_turns")
def test_who_finds_too_many_waiting_is_turned_away_at_once(
    database_url: str, new_user: NewUser, auditor: Engine
) -> None:
    users = [new_user() for _ in range(5)]

    async def meet() -> None:
        async with scene.while_another_is_served():
            taken = [scene.call(user) for user in users[:3]]
            await asyncio.sleep(0)
            turned_away = await all_of([scene.call(user) for user in users[3:]])
            assert not any(one.done() for one in taken)
        assert [type(one) for one in turned_away] == [Overloaded, Overloaded]
        registered(await all_of(taken))

    with scene_at(database_url, new_user, group_queue=3) as scene:
        asyncio.run(meet())
    one_row_and_event_each(auditor, users[:3])
    assert [devices_of(auditor, user) for user in users[3:]] == [[], []]


@pytest.mark.usefixtures("long_turns")
def test_who_has_waited_too_long_is_turned_away_and_never_registered(
    database_url: str, new_user: NewUser, auditor: Engine
) -> None:
    users = [new_user() for _ in range(3)]

    async def meet() -> None:
        async with scene.while_another_is_served():
            results = await all_of([scene.call(user) for user in users])
            assert [type(one) for one in results] == [Overloaded] * 3
        registered(await scene.together((new_user(), "a"), (new_user(), "a")))  # the queue goes on

    with scene_at(database_url, new_user, database_pool_wait_seconds=0.2) as scene:
        asyncio.run(meet())
    assert [devices_of(auditor, user) for user in users] == [[], [], []]


@pytest.mark.usefixtures("long_turns")
def test_who_leaves_the_queue_is_not_registered(scene: Scene, new_user: NewUser, auditor: Engine) -> None:
    users = [new_user() for _ in range(4)]

    async def meet() -> None:
        async with scene.while_another_is_served():
            under_way = [scene.call(user, f"of-{user}") for user in users]
            await asyncio.sleep(0)
            under_way.pop(1).cancel()
        assert registered(await all_of(under_way)) == [f"of-{user}" for user in (users[0], *users[2:])]

    asyncio.run(meet())
    assert devices_of(auditor, users[1]) == []


@pytest.mark.usefixtures("long_turns")
def test_who_leaves_in_mid_group_takes_nobody_s_answer_along(
    scene: Scene, new_user: NewUser, auditor: Engine
) -> None:
    users = [new_user() for _ in range(4)]

    async def meet() -> None:
        async with scene.while_another_is_served():
            under_way = [scene.call(user, f"of-{user}") for user in users]
            gate = scene.gate_at(LOCKS)
        await gate.reached()
        under_way.pop(1).cancel()
        gate.open()
        assert registered(await all_of(under_way)) == [f"of-{user}" for user in (users[0], *users[2:])]

    asyncio.run(meet())
    assert devices_of(auditor, users[1]) == [f"of-{users[1]}"]
