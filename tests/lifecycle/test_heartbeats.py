"""A heartbeat in flight while its lease runs out and a registration wants the slot.

A heartbeat takes no user lock, so only the row itself decides. Its clock is set back where it must have begun
before the lease ran out: nobody sleeps through a lease.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import Engine

from app.db import Database, Tx
from app.devices import changes
from app.devices.schemas import Device
from app.errors import DeviceExpired, DeviceLimitReached, DeviceNotFound
from tests.lifecycle.rows import let_lease_end, put_devices, put_own_limit
from tests.lifecycle.steps import before_first, database, held, in_the_past, waiting
from tests.lifecycle.trail import devices_of, replayed, types_of
from tests.proxy import proxied
from tests.servers import Server
from tests.use_cases import LIMIT, register, revoke

pytestmark = pytest.mark.locking

AN_HOUR = 3600


def heartbeat_of_an_hour_ago(tx: Tx, user: int) -> Device:
    return in_the_past(tx, AN_HOUR, changes.heartbeat, user, "a")


@pytest.fixture
def user(db: Database, auditor: Engine, new_user: Callable[[], int]) -> int:
    """Full; the lease of `a`, which is of two hours, ran out half an hour ago."""
    full = new_user()
    db.transact(register, full, "a")
    db.transact(register, full, "b")
    let_lease_end(auditor, full, "a", ago_seconds=AN_HOUR // 2)
    return full


def test_a_registration_waits_for_a_heartbeat_in_flight_and_is_refused_once_it_commits(
    server: Server, db: Database, other: Database, auditor: Engine, user: int
) -> None:
    with held(db, heartbeat_of_an_hour_ago, user) as beat, waiting(server, other, register, user, "c") as new:
        assert beat.commit().device_id == "a"
        with pytest.raises(DeviceLimitReached):
            new.result()
    assert devices_of(auditor, user) == ["a", "b"]
    assert db.transact(changes.heartbeat, user, "a").device_id == "a"
    assert types_of(auditor, user) == ["device.registered", "device.registered"]


def test_a_registration_takes_the_slot_once_the_heartbeat_in_flight_is_rolled_back(
    server: Server, db: Database, other: Database, auditor: Engine, user: int
) -> None:
    with held(db, heartbeat_of_an_hour_ago, user) as beat, waiting(server, other, register, user, "c") as new:
        beat.roll_back()
        assert new.result().quota.used == LIMIT
    assert devices_of(auditor, user) == ["b", "c"]
    replayed(auditor, user, LIMIT)


def test_a_heartbeat_that_waits_for_the_registration_which_removes_its_device_is_answered_410(
    server: Server, db: Database, other: Database, auditor: Engine, user: int
) -> None:
    with (
        held(db, register, user, "c") as new,
        waiting(server, other, heartbeat_of_an_hour_ago, user) as beat,
    ):
        assert new.commit().quota.used == LIMIT
        with pytest.raises(DeviceExpired):
            beat.result()
    assert devices_of(auditor, user) == ["b", "c"]
    assert replayed(auditor, user, LIMIT).types["device.expired"] == 1


def test_a_heartbeat_that_waits_for_a_registration_which_fails_is_answered_200(
    server: Server, db: Database, other: Database, auditor: Engine, user: int
) -> None:
    with (
        held(db, register, user, "c") as new,
        waiting(server, other, heartbeat_of_an_hour_ago, user) as beat,
    ):
        new.roll_back()
        assert beat.result().device_id == "a"
    assert devices_of(auditor, user) == ["a", "b"]


def test_a_heartbeat_that_commits_between_a_registration_s_look_and_its_removal_keeps_its_device(
    database_url: str, db: Database, auditor: Engine, user: int
) -> None:
    beats: list[Device] = []
    with proxied(database_url) as (proxy, url), database(url) as behind_proxy:
        before_first(
            proxy,
            "ORDER BY devices.device_id",
            lambda: beats.append(db.transact(heartbeat_of_an_hour_ago, user)),
        )
        with pytest.raises(DeviceLimitReached):
            behind_proxy.transact(register, user, "c")
    assert [device.device_id for device in beats] == ["a"]
    assert devices_of(auditor, user) == ["a", "b"]


def test_a_heartbeat_after_the_lease_ran_out_brings_nothing_back(
    db: Database, auditor: Engine, user: int
) -> None:
    """Before the device is removed, and after."""
    for new in ("c", "d"):
        with pytest.raises(DeviceExpired):
            db.transact(changes.heartbeat, user, "a")
        with suppress(DeviceLimitReached):
            db.transact(register, user, new)
    assert devices_of(auditor, user) == ["b", "c"]
    replayed(auditor, user, LIMIT)


def test_a_device_that_registers_while_its_heartbeat_finds_nothing_has_not_expired(
    database_url: str, db: Database, user: int
) -> None:
    """The heartbeat came first, so that its answer is 404, and not that a new lease has run out."""
    with proxied(database_url) as (proxy, url), database(url) as behind_proxy:
        db.transact(revoke, user, "b")
        before_first(proxy, "SELECT devices.user_id", lambda: db.transact(register, user, "b"))
        with pytest.raises(DeviceNotFound):
            behind_proxy.transact(changes.heartbeat, user, "b")


def test_a_registration_does_not_wait_for_what_has_expired_of_another_user(
    db: Database, other: Database, auditor: Engine, user: int, new_user: Callable[[], int]
) -> None:
    """Of many devices few have expired: the index by expiry would be the short way, through others' rows."""
    many = new_user()
    put_own_limit(auditor, many, 5000)
    put_devices(auditor, many, [f"device-{number}" for number in range(3000)])
    let_lease_end(auditor, many, "device-7")
    with auditor.connect() as connection:
        connection.exec_driver_sql("ANALYZE TABLE devices").all()
    with held(db, heartbeat_of_an_hour_ago, user):
        assert other.transact(register, many, "new").quota.used == 3000
