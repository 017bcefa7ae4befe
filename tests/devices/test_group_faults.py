"""What a fault costs those who share a transaction: each goes once more alone, and is answered in time."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from app.db import Database, Tx
from app.devices.service import Registered
from app.errors import DatabaseUnavailable, Overloaded, Unavailable
from app.nodes import MOST_GROUPS
from tests.devices.scenes import (
    LOCKS,
    LOOKS,
    PATIENCE_SECONDS,
    Scene,
    all_of,
    one_row_and_event_each,
    registered,
    scene_at,
)
from tests.lifecycle.trail import devices_of, types_of
from tests.proxy import Fate
from tests.servers import Server
from tests.use_cases import register

pytestmark = [pytest.mark.locking, pytest.mark.usefixtures("long_turns")]

NewUser = Callable[[], int]
LOST = pytest.mark.parametrize("fate", [Fate.CUT_BEFORE, Fate.CUT_AFTER], ids=["unseen", "unanswered"])


@LOST
@pytest.mark.parametrize(
    "words", [LOOKS, "INSERT IGNORE", LOCKS, "INSERT INTO devices", "INSERT INTO events"]
)
def test_a_lost_connection_costs_a_run_and_no_answer(
    words: str, fate: Fate, scene: Scene, new_user: NewUser, auditor: Engine
) -> None:
    users = [new_user() for _ in range(5)]
    lost = scene.lose(words, fate)
    results = asyncio.run(scene.together(*((user, f"of-{user}") for user in users)))
    assert lost.is_passed
    assert registered(results) == [f"of-{user}" for user in users]
    for user in users:
        one_row_and_event_each(auditor, [user], f"of-{user}")


@LOST
@pytest.mark.parametrize("after", ["INSERT IGNORE", LOCKS], ids=["of lock rows", "of the group"])
def test_a_commit_of_unknown_outcome_is_each_caller_s_success_and_one_effect(
    after: str, fate: Fate, scene: Scene, new_user: NewUser, auditor: Engine
) -> None:
    users = [new_user() for _ in range(5)]
    lost = scene.lose("COMMIT", fate, after)
    results = asyncio.run(scene.together(*((user, f"of-{user}") for user in users)))
    assert lost.is_passed
    assert registered(results) == [f"of-{user}" for user in users]
    for user in users:
        one_row_and_event_each(auditor, [user], f"of-{user}")


@LOST
def test_the_same_device_twice_in_a_group_whose_commit_is_uncertain_is_created_for_one(
    fate: Fate, scene: Scene, new_user: NewUser, auditor: Engine
) -> None:
    user = new_user()
    lost = scene.lose("COMMIT", fate, after=LOCKS)
    results = asyncio.run(scene.together((user, "a"), (user, "a"), (new_user(), "a")))
    assert lost.is_passed
    assert sorted(one.created for one in results[:2] if isinstance(one, Registered)) == [False, True]
    one_row_and_event_each(auditor, [user])


@contextmanager
def refused_by_the_database(server: Server, database_url: str, device: str, errno: int) -> Iterator[None]:
    database = database_url.rpartition("/")[2].partition("?")[0]
    with server.admin_connection(database) as admin:
        admin.exec_driver_sql(
            "CREATE TRIGGER refuse_one BEFORE INSERT ON devices FOR EACH ROW IF NEW.device_id ="
            f" '{device}' THEN SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {errno}; END IF"
        )
        try:
            yield
        finally:
            admin.exec_driver_sql("DROP TRIGGER refuse_one")


@pytest.mark.parametrize("errno", [1644, 1213], ids=["mistake", "deadlock"])
def test_a_row_that_the_database_refuses_fails_its_own_call_alone(
    errno: int, database_url: str, server: Server, new_user: NewUser, auditor: Engine
) -> None:
    if not server.is_private:
        pytest.skip("may make no trigger")
    users, bad = [new_user() for _ in range(4)], new_user()
    calls = [(user, "a") for user in users]
    with (
        scene_at(database_url, new_user, lock_budget_seconds=2) as scene,
        refused_by_the_database(server, database_url, "bad", errno),
    ):
        *good, refused = asyncio.run(scene.together(*calls, (bad, "bad")))
    registered(good)
    assert isinstance(refused, DBAPIError if errno == 1644 else Unavailable)
    one_row_and_event_each(auditor, users)
    assert (devices_of(auditor, bad), types_of(auditor, bad)) == ([], [])


def test_a_device_that_somebody_else_holds_costs_a_group_a_second_and_nobody_their_answer(
    scene: Scene, db: Database, new_user: NewUser, auditor: Engine
) -> None:
    """As a heartbeat does, which takes no lock of the user: the device's row, in mid-group."""
    users = [new_user() for _ in range(4)]
    db.transact(register, users[0], "a")

    async def meet() -> None:
        with auditor.connect() as rival:
            rival.exec_driver_sql("BEGIN")
            held = text("SELECT name FROM devices WHERE user_id = :user AND device_id = 'a' FOR UPDATE")
            assert rival.execute(held, {"user": users[0]}).all()
            async with scene.while_another_is_served():
                waiting = scene.call(users[0], name="new")
                others = [scene.call(user) for user in users[1:]]
            began = time.monotonic()
            registered(await all_of(others))
            assert time.monotonic() - began < 3
            rival.exec_driver_sql("ROLLBACK")
            (known,) = await all_of([waiting])
        assert isinstance(known, Registered)
        assert (known.created, known.device.revision) == (False, 2)

    asyncio.run(meet())
    one_row_and_event_each(auditor, users)


def test_a_fault_of_our_own_in_a_group_leaves_each_call_its_answer(
    scene: Scene, new_user: NewUser, auditor: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TypeError

    monkeypatch.setattr("app.devices.groups.register_together", fail)
    users = [new_user() for _ in range(3)]
    registered(asyncio.run(scene.together(*((user, "a") for user in users))))
    one_row_and_event_each(auditor, users)


BUDGET_SECONDS = 2


@pytest.mark.parametrize("at", [LOOKS, "INSERT INTO events"])
def test_a_database_that_freezes_is_waited_for_no_longer_than_by_one_call(
    at: str, database_url: str, new_user: NewUser
) -> None:
    async def meet() -> None:
        async with scene.while_another_is_served():
            under_way = [scene.call(new_user()) for _ in range(20)]
            gate = scene.gate_at(at)
        await gate.reached()
        scene.proxy.freeze()
        began = time.monotonic()
        gate.open()
        results = await all_of(under_way)
        # The driver's patience is a second longer than the budget.
        assert time.monotonic() - began < BUDGET_SECONDS + 1 + 1
        assert all(isinstance(one, Unavailable) for one in results), results

    with scene_at(database_url, new_user, lock_budget_seconds=BUDGET_SECONDS) as scene:
        asyncio.run(meet())


@pytest.mark.parametrize(
    ("at", "answer"), [(LOCKS, Overloaded), ("COMMIT", DatabaseUnavailable)], ids=["unchanged", "uncertain"]
)
def test_after_a_group_that_froze_nobody_waits_for_a_connection_past_the_budget(
    at: str, answer: type[Unavailable], database_url: str, new_user: NewUser
) -> None:
    """What such a call is told says whether it may have been done all the same."""
    may_end = threading.Event()

    def hold(_tx: Tx) -> None:
        may_end.wait(PATIENCE_SECONDS)

    async def meet() -> None:
        async with scene.while_another_is_served():
            under_way = [scene.call(new_user()) for _ in range(5)]
            gate = scene.gate_at(at, after=LOCKS)
            occupant = asyncio.create_task(scene.db.submit(hold))
        await gate.reached()
        scene.proxy.freeze()
        began = time.monotonic()
        gate.open()
        results = await all_of(under_way)
        assert time.monotonic() - began < BUDGET_SECONDS + 1 + 1
        assert [type(one) for one in results] == [answer] * 5
        may_end.set()
        scene.proxy.thaw()
        await occupant

    patient = {"database_pool_size": 1, "database_pool_wait_seconds": PATIENCE_SECONDS}
    with scene_at(database_url, new_user, lock_budget_seconds=BUDGET_SECONDS, **patient) as scene:
        asyncio.run(meet())


def test_every_call_is_answered_while_all_groups_are_frozen_and_after_it(
    database_url: str, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.devices.groups.LONGEST_TURN_SECONDS", 0.01)

    async def meet() -> None:
        scene.proxy.freeze()
        began = time.monotonic()
        under_way = []
        for _ in range(2 * MOST_GROUPS):
            under_way += [scene.call(new_user()) for _ in range(8)]
            await asyncio.sleep(0.03)  # until a turn is over, so that more groups follow
        results = await all_of(under_way)
        assert all(isinstance(one, Unavailable) for one in results), results
        assert time.monotonic() - began < 1 + 2 * (BUDGET_SECONDS + 1) + 1
        scene.proxy.thaw()
        registered(await all_of([scene.call(new_user()) for _ in range(8)]))

    settings = {
        "lock_budget_seconds": BUDGET_SECONDS,
        "database_pool_wait_seconds": 1,
        "database_pool_size": 2,
    }
    with scene_at(database_url, new_user, **settings) as scene:
        asyncio.run(meet())
