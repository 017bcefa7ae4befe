"""Each kind of damage is found, named and told from what may be; what is sound is not complained of."""

import datetime
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from app.audit.findings import AboveLimit, OrphanLock, TrailBroken
from app.audit.trail import Cause
from app.db import Database, Tx
from app.devices import changes
from app.devices.schemas import NewDevice
from app.devices.service import register as register_at
from app.errors import DeviceNotFound
from app.etags import Precondition
from app.imports.service import OverLimit
from app.quotas.service import set_limit
from app.settings import Settings
from app.users.service import erase_rest, erase_some
from tests.audit.looks import all_found, cupo_audit, said_as_json
from tests.imports.files import a_file, outcomes
from tests.lifecycle.rows import let_lease_end, put_devices, put_own_limit, run
from tests.use_cases import ORIGIN, register, revoke

USER = 2**64 - 1
OTHER = 7


def whole_life(db: Database, own: Settings) -> None:
    """Whatever the service does to devices, on a user and another one."""

    def limit(tx: Tx, to: int | None) -> object:
        return set_limit(tx, own, ORIGIN, USER, to, Precondition())

    def block(tx: Tx, device_id: str) -> object:
        return changes.revoke(tx, ORIGIN, USER, device_id, Precondition(), block=True)

    def register_with(tx: Tx, device_id: str, **ways: object) -> object:
        return register(tx, USER, device_id, **ways)

    for device in ("a", "b"):
        db.transact(partial(register_with, lease_seconds=60), device)
    db.transact(partial(register_with, replace_device_id="a"), "c")
    db.transact(partial(register_with, on_limit="evict_oldest"), "d")
    db.transact(revoke, USER, "d")
    db.transact(register, USER, "e")
    db.transact(changes.transfer, own, ORIGIN, USER, "e", OTHER)
    db.transact(limit, 5)
    for device in ("f", "g", "h"):
        db.transact(register, USER, device)
    db.transact(block, "h")
    db.transact(limit, None)
    db.transact(changes.revoke_some, ORIGIN, USER, None)
    db.transact(register, USER, "i")


def above(found: list[Any]) -> AboveLimit:
    (only,) = found
    assert isinstance(only, AboveLimit)
    return only


def event_of(rows: Engine, user_id: int, device_id: str) -> tuple[int, datetime.datetime]:
    query = (
        "SELECT id, occurred_at FROM events WHERE user_id = :user AND device_id = :device ORDER BY id DESC"
    )
    with rows.connect() as connection:
        found = connection.execute(text(query), {"user": user_id, "device": device_id}).first()
    assert found is not None
    return found.id, found.occurred_at


def test_what_the_service_does_is_sound(own: Settings, own_db: Database) -> None:
    whole_life(own_db, own)
    assert all_found(own_db, own) == []
    result = cupo_audit(own, "--json")
    findings, summary = said_as_json(result)
    assert (result.exit_code, findings, summary["ok"]) == (0, [], True)


def test_an_empty_database_is_sound(own: Settings) -> None:
    assert cupo_audit(own).exit_code == 0


def test_a_device_that_should_have_been_refused_is_told_with_its_event(
    own: Settings, own_db: Database, rows: Engine
) -> None:
    """By a replica that believes in a higher limit: what a broken lock leaves is the same."""
    own_db.transact(register, OTHER, "within")
    lax = own.model_copy(update={"default_device_limit": 5})
    for device in ("a", "b", "c", "d"):
        own_db.transact(register_at, lax, ORIGIN, USER, device, NewDevice())
    event_id, at = event_of(rows, USER, "c")
    found = above(all_found(own_db, own))
    assert found == AboveLimit(user_id=USER, cause=Cause.PASSED, used=4, limit=2, since=at, event_id=event_id)
    result = cupo_audit(own, "--json")
    findings, summary = said_as_json(result)
    assert result.exit_code == 1
    assert findings[0] == {
        "user_id": str(USER),
        "finding": "above_limit",
        "cause": "passed",
        "used": 4,
        "limit": 2,
        "since": at.isoformat(timespec="microseconds") + "Z",
        "event_id": str(event_id),
    }
    assert (summary["ok"], summary["above_limit_passed"]) == (False, 1)
    assert (
        f"user {USER}: 4 of 2 devices since {at:%Y-%m-%dT%H:%M:%S.%f}Z, event {event_id}: a device came"
        in (cupo_audit(own).stdout)
    )


def test_a_transfer_that_should_have_been_refused_is_found(own: Settings, own_db: Database) -> None:
    for device in ("a", "b"):
        own_db.transact(register, USER, device)
    own_db.transact(register, OTHER, "c")
    lax = own.model_copy(update={"default_device_limit": 5})
    own_db.transact(changes.transfer, lax, ORIGIN, OTHER, "c", USER)
    assert above(all_found(own_db, own)).cause is Cause.PASSED


def test_a_limit_that_was_lowered_is_no_failure_until_another_device_comes(
    own: Settings, own_db: Database, rows: Engine
) -> None:
    for device in ("a", "b"):
        own_db.transact(register, USER, device)
    own_db.transact(set_limit, own, ORIGIN, USER, 1, Precondition())
    with rows.connect() as connection:
        query = text("SELECT occurred_at FROM events WHERE type = 'quota.changed'")
        lowered_at = connection.execute(query).scalar_one()
    found = above(all_found(own_db, own))
    assert (found.cause, found.used, found.limit, found.since) == (Cause.LOWERED, 2, 1, lowered_at)
    assert cupo_audit(own).exit_code == 0
    run(rows, "UPDATE user_quotas SET device_limit = 9")  # a replica that does not see the limit
    own_db.transact(register, USER, "c")
    run(rows, "UPDATE user_quotas SET device_limit = 1")
    assert above(all_found(own_db, own)).cause is Cause.PASSED
    assert cupo_audit(own).exit_code == 1


def test_a_user_who_was_below_in_between_is_above_since_the_last_rise(
    own: Settings, own_db: Database, rows: Engine
) -> None:
    lax = own.model_copy(update={"default_device_limit": 5})
    for device in ("a", "b", "c"):
        own_db.transact(register_at, lax, ORIGIN, USER, device, NewDevice())
    for device in ("a", "b"):
        own_db.transact(revoke, USER, device)
    for device in ("d", "e"):
        own_db.transact(register_at, lax, ORIGIN, USER, device, NewDevice())
    assert above(all_found(own_db, own)).event_id == event_of(rows, USER, "e")[0]


def test_devices_kept_by_an_import_are_no_failure(own: Settings, own_db: Database, folder: Path) -> None:
    outcomes(own_db, own, a_file(folder, [USER], 4), OverLimit.KEEP)
    found = above(all_found(own_db, own))
    assert (found.cause, found.used) == (Cause.IMPORTED, 4)
    assert cupo_audit(own).exit_code == 0


def test_a_default_that_was_lowered_is_told_by_a_setting(
    own: Settings, own_db: Database, rows: Engine
) -> None:
    lax = own.model_copy(update={"default_device_limit": 3})
    for device in ("a", "b", "c"):
        own_db.transact(register_at, lax, ORIGIN, USER, device, NewDevice())
    with rows.connect() as connection:
        lowered_at = connection.execute(text("SELECT UTC_TIMESTAMP(6)")).scalar_one()
    since = lowered_at.replace(tzinfo=datetime.UTC)
    told = own.model_copy(update={"default_device_limit_since": since})
    assert above(all_found(own_db, own)).cause is Cause.PASSED
    found = above(all_found(own_db, told))
    assert (found.cause, found.since) == (Cause.LOWERED, lowered_at)
    own_db.transact(register_at, lax, ORIGIN, OTHER, "a", NewDevice())
    lax = own.model_copy(update={"default_device_limit": 4})
    own_db.transact(register_at, lax, ORIGIN, USER, "d", NewDevice())
    assert above(all_found(own_db, told)).cause is Cause.PASSED


def test_devices_whose_lease_has_run_out_do_not_count(own: Settings, own_db: Database, rows: Engine) -> None:
    put_own_limit(rows, USER, 3)
    for device in ("a", "b", "c"):
        own_db.transact(register, USER, device)
    run(rows, "DELETE FROM user_quotas")
    assert above(all_found(own_db, own)).used == 3
    let_lease_end(rows, USER, "a")
    assert all_found(own_db, own) == []


def test_devices_that_came_past_the_service_are_found(own: Settings, own_db: Database, rows: Engine) -> None:
    put_devices(rows, USER, ["a", "b", "c"])
    own_db.transact(register, OTHER, "mine")
    put_devices(rows, OTHER, ["slipped-in"])
    found = all_found(own_db, own)
    assert found[0] == AboveLimit(
        user_id=USER, cause=Cause.UNTOLD, used=3, limit=2, since=None, event_id=None
    )
    strays = {(one.user_id, one.finding, one.device_id) for one in found if isinstance(one, TrailBroken)}
    assert strays == {
        (USER, "device_without_event", "a"),
        (USER, "device_without_event", "b"),
        (USER, "device_without_event", "c"),
        (OTHER, "device_without_event", "slipped-in"),
    }
    result = cupo_audit(own)
    assert result.exit_code == 1
    assert f"user {OTHER}: device slipped-in is there, and by the trail should not be" in result.stdout


@pytest.mark.parametrize(
    "damage", ["DELETE FROM devices WHERE device_id = 'a'", "UPDATE devices SET user_id = 8"]
)
def test_devices_that_went_past_the_service_are_found(
    own: Settings, own_db: Database, rows: Engine, damage: str
) -> None:
    own_db.transact(register, USER, "a")
    run(rows, damage)
    lost = TrailBroken(user_id=USER, finding="event_without_device", device_id="a")
    assert lost in all_found(own_db, own)
    assert cupo_audit(own).exit_code == 1


def test_a_lost_event_is_found(own: Settings, own_db: Database, rows: Engine) -> None:
    own_db.transact(register, USER, "a")
    own_db.transact(revoke, USER, "a")
    run(rows, "DELETE FROM events WHERE type = 'device.revoked'")
    assert all_found(own_db, own) == [
        TrailBroken(user_id=USER, finding="event_without_device", device_id="a")
    ]


def test_an_erased_user_leaves_nothing_to_find(own: Settings, own_db: Database) -> None:
    own_db.transact(register, USER, "a")
    while own_db.transact(erase_some, USER):
        pass
    own_db.transact(erase_rest, ORIGIN, USER)
    assert all_found(own_db, own) == []


def test_a_lock_row_of_nobody_else_is_counted_and_no_failure(
    own: Settings, own_db: Database, new_user: Callable[[], int]
) -> None:
    own_db.transact(register, OTHER, "a")
    stranger = new_user()
    with pytest.raises(DeviceNotFound):
        own_db.transact(revoke, stranger, "no-such-device")
    assert all_found(own_db, own) == [OrphanLock(user_id=stranger)]
    result = cupo_audit(own)
    assert (result.exit_code, "          1  lock rows of users who have nothing else" in result.stdout) == (
        0,
        True,
    )
    assert said_as_json(cupo_audit(own, "--json"))[0] == [
        {"user_id": str(stranger), "finding": "orphan_lock"}
    ]
