"""Erasing a user leaves nothing but the fact, also while others register for the same user."""

import datetime
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, select

from app.db import Database
from app.tables import metadata
from app.users.service import erase_rest
from tests.callers import Call, at_once, by_many, one_by_one, register, statuses
from tests.lifecycle.rows import let_lease_end, put_devices, put_own_limit
from tests.lifecycle.steps import before_first, connection_id, database, wait_until_it_waits
from tests.lifecycle.test_keys import with_key
from tests.lifecycle.test_transfers import transfer
from tests.lifecycle.trail import devices_of, replayed, types_of
from tests.proxy import proxied
from tests.servers import Server
from tests.services import Service
from tests.use_cases import ORIGIN
from tests.use_cases import register as register_in
from tests.watching import watched
from tests.webhooks.rows import put_delivery, put_endpoint

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]
LIMIT = 2


def erase(user: int) -> Call:
    return Call("DELETE", f"/v1/users/{user}")


def rows_of(auditor: Engine, user: int) -> Iterator[tuple[str, Any]]:
    """Every row of every table that is the user's, or names the user anywhere in its text."""
    with auditor.connect() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(select(table)):
                if user in row or any(str(user) in str(value) for value in row):
                    yield table.name, row


def a_whole_life(user: int, friend: int) -> list[Call]:
    """Calls that leave something of the user in every table."""
    path = f"/v1/users/{user}/devices"
    return [
        Call("PUT", f"/v1/users/{user}/quota", {"limit": 4, "reason": "a reason"}),
        with_key(register(user, "a", name="Ana's phone"), "key-a"),
        register(user, "b", lease_seconds=60),
        register(user, "blocked"),
        Call("DELETE", f"{path}/blocked?block=true&reason=stolen"),
        Call("PATCH", f"{path}/a", {"name": "Ana's old phone"}),
        register(friend, "c"),
        with_key(transfer(user, "a", friend), "key-there"),
        transfer(friend, "a", user),
    ]


def test_an_erased_user_is_in_no_table_but_for_one_event_without_data(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, friend = new_user(), new_user()
    assert all(answer.is_success for answer in one_by_one(service, a_whole_life(user, friend)))
    let_lease_end(auditor, user, "b")
    endpoint = put_endpoint(auditor, deleted_at=datetime.datetime(2026, 11, 30))  # noqa: DTZ001 - as the database has it
    put_delivery(auditor, endpoint, user)
    before = {table for table, row in rows_of(auditor, user) if row.user_id == user}
    assert before == {name for name, table in metadata.tables.items() if "user_id" in table.columns}
    (answer,) = one_by_one(service, [erase(user)])
    assert answer.status_code == 204
    left = [(table, row) for table, row in rows_of(auditor, user) if row.user_id == user]
    ((table, event),) = left
    assert (table, event.type, event.device_id, event.reason, event.data) == (
        "events",
        "user.erased",
        None,
        None,
        {},
    )
    # What a friend was given and gave is told in the friend's own trail, by number.
    others = [(table, row) for table, row in rows_of(auditor, user) if row.user_id != user]
    assert {table for table, _ in others} == {"events"}
    assert {row.type for _, row in others} == {"device.transferred"}


def test_the_answer_to_a_transfer_goes_with_its_receiver(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    """It is kept for the sender's key, and it tells of the receiver's device and quota."""
    sender, receiver = new_user(), new_user()
    one_by_one(
        service,
        [register(sender, "a", name="Ana's phone"), with_key(transfer(sender, "a", receiver), "key")],
    )
    one_by_one(service, [erase(receiver)])
    assert {table for table, _ in rows_of(auditor, receiver)} == {"events"}


def test_erasing_twice_and_erasing_a_stranger_leave_one_event(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, stranger = new_user(), new_user()
    calls = [register(user, "a"), erase(user), erase(user), erase(stranger)]
    assert [answer.status_code for answer in one_by_one(service, calls)] == [201, 204, 204, 204]
    assert [types_of(auditor, one) for one in (user, stranger)] == [["user.erased"]] * 2


def test_two_erasures_at_once_of_1200_devices_and_events_leave_one_event(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    put_own_limit(auditor, user, 1300)
    put_devices(auditor, user, [f"device-{number}" for number in range(1200)])
    one_by_one(service, [Call("DELETE", f"/v1/users/{user}/devices")])
    put_devices(auditor, user, [f"device-{number}" for number in range(1200)])
    assert statuses(at_once(service, [erase(user)] * 2)) == {204: 2}
    assert [table for table, _ in rows_of(auditor, user)] == ["events"]
    assert types_of(auditor, user) == ["user.erased"]


def test_registrations_that_race_with_an_erasure_succeed_and_never_pass_the_limit(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    """The erasure deletes the lock row that they wait for; each then makes it anew, or finds it."""
    users = [new_user() for _ in range(10)]
    calls = [
        call
        for number in range(60)
        for user in users
        for call in (erase(user) if number % 6 == 5 else register(user, f"device-{number}"),)
    ]
    with watched(auditor, users, LIMIT) as over:
        answers = by_many(service, calls, callers=20)
    assert over == []
    assert set(statuses(answers)) == {201, 204, 409}
    for user in users:
        replay = replayed(auditor, user, LIMIT)
        assert replay.types["user.erased"] == 1
        assert len(devices_of(auditor, user)) <= LIMIT


def test_a_registration_that_comes_in_the_middle_of_an_erasure_waits_for_its_end(
    server: Server, database_url: str, db: Database, auditor: Engine, new_user: NewUser
) -> None:
    """Else its device would stay, and its event would go with the others."""
    user = new_user()
    db.transact(register_in, user, "a")
    connection = db.transact(connection_id)
    rivals: list[Future[Any]] = []
    with (
        proxied(database_url) as (proxy, url),
        database(url) as behind_proxy,
        ThreadPoolExecutor(1) as threads,
    ):

        def arrive() -> None:
            rivals.append(threads.submit(db.transact, register_in, user, "b"))
            with suppress(AssertionError):  # what became of it shows below
                wait_until_it_waits(server, connection, rivals[0])

        before_first(proxy, "DELETE FROM user_quotas", arrive)
        behind_proxy.transact(erase_rest, ORIGIN, user)
    assert rivals[0].result().created
    assert types_of(auditor, user) == ["user.erased", "device.registered"]
    assert replayed(auditor, user, LIMIT).devices == {"b"}
