"""Between a COMMIT whose answer is lost and the run after it, a rival comes, and is answered.

What did happen is not done again, against what the rival was told; what did not is the rival's doing alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine

from app.db import Database, Tx, uncertain_result
from app.devices import changes
from app.devices.schemas import DeviceChange
from app.errors import AppError, BlockNotFound, DeviceLimitReached, DeviceNotFound, PreconditionFailed
from app.etags import Precondition
from app.quotas.queries import insert_lock_row
from app.quotas.service import read_quota, set_limit
from app.users.service import erase_rest
from tests.lifecycle.steps import database
from tests.lifecycle.test_uncertain_commits import AT_REVISION_0, AT_REVISION_1, SETTINGS, Behind
from tests.lifecycle.trail import devices_of, types_of
from tests.proxy import Fate, proxied
from tests.use_cases import ORIGIN, list_devices, register, revoke

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]
ANY = Precondition()


@dataclass(frozen=True)
class Meeting:
    """A call whose first COMMIT is lost, and a rival's before it runs again."""

    behind: Behind

    def run(self, rival: Callable[[], object], work: Callable[..., Any], *args: Any) -> Any:
        """What `work` gives in the end."""
        came = False

        def after_the_rival(tx: Tx) -> Any:
            nonlocal came
            if uncertain_result(tx) is not None and not came:
                came = True
                rival()
            return work(tx, *args)

        try:
            return self.behind.run(after_the_rival)
        finally:
            assert came, "no rival came"


@contextmanager
def meeting(database_url: str, fate: Fate) -> Iterator[Meeting]:
    with proxied(database_url) as (proxy, url), database(url) as behind_proxy:
        yield Meeting(Behind(behind_proxy, proxy, fate))


@pytest.fixture
def committed(database_url: str) -> Iterator[Meeting]:
    with meeting(database_url, Fate.CUT_AFTER) as made:
        yield made


@pytest.fixture
def not_committed(database_url: str) -> Iterator[Meeting]:
    with meeting(database_url, Fate.CUT_BEFORE) as made:
        yield made


@pytest.fixture
def newcomer(db: Database, new_user: NewUser) -> int:
    """Has a lock row, to be made by no transaction that is watched, and no device."""
    made = new_user()
    db.transact(insert_lock_row, made)
    return made


@pytest.fixture
def user(db: Database, new_user: NewUser) -> int:
    """Has the devices `a` and `b`, and no more room."""
    made = new_user()
    for device in ("a", "b"):
        db.transact(register, made, device)
    return made


def test_a_device_registered_after_its_revocation_stays(
    committed: Meeting, db: Database, auditor: Engine, user: int
) -> None:
    committed.run(lambda: db.transact(register, user, "a"), revoke, user, "a")
    assert devices_of(auditor, user) == ["a", "b"]
    assert types_of(auditor, user)[2:] == ["device.revoked", "device.registered"]


def test_a_device_registered_after_all_were_revoked_stays(
    committed: Meeting, db: Database, auditor: Engine, user: int
) -> None:
    batch = committed.run(lambda: db.transact(register, user, "a"), changes.revoke_some, ORIGIN, user, None)
    assert batch.device_ids == {"a", "b"}
    assert devices_of(auditor, user) == ["a"]


def test_a_device_registered_after_its_transfer_stays(
    committed: Meeting, db: Database, auditor: Engine, user: int, newcomer: int
) -> None:
    def begin_anew() -> None:
        db.transact(revoke, newcomer, "a")
        db.transact(register, user, "a")

    moved = committed.run(begin_anew, changes.transfer, SETTINGS, ORIGIN, user, "a", newcomer)
    assert moved.device.user_id == newcomer
    assert (devices_of(auditor, user), devices_of(auditor, newcomer)) == (["a", "b"], [])


def test_a_device_revoked_after_its_registration_does_not_rise_again(
    committed: Meeting, db: Database, auditor: Engine, newcomer: int
) -> None:
    done = committed.run(lambda: db.transact(revoke, newcomer, "a"), register, newcomer, "a")
    assert done.created
    assert devices_of(auditor, newcomer) == []
    assert types_of(auditor, newcomer) == ["device.registered", "device.revoked"]


def test_a_device_registered_after_an_erasure_stays(
    committed: Meeting, db: Database, auditor: Engine, user: int
) -> None:
    committed.run(lambda: db.transact(register, user, "a"), erase_rest, ORIGIN, user)
    assert devices_of(auditor, user) == ["a"]
    assert types_of(auditor, user) == ["user.erased", "device.registered"]


def test_a_limit_set_after_another_stays(committed: Meeting, db: Database, user: int) -> None:
    theirs = (set_limit, SETTINGS, ORIGIN, user, 3, ANY)
    limited = committed.run(lambda: db.transact(*theirs), set_limit, SETTINGS, ORIGIN, user, 5, AT_REVISION_0)
    assert (limited.quota.limit, limited.quota.revision) == (5, 1)
    assert db.transact(read_quota, SETTINGS, user).limit == 3


def test_a_change_after_another_stays(committed: Meeting, db: Database, user: int) -> None:
    def change_to(name: str, at: Precondition) -> tuple[Any, ...]:
        return changes.change_device, ORIGIN, user, "a", DeviceChange(name=name), at

    changed = committed.run(lambda: db.transact(*change_to("theirs", ANY)), *change_to("mine", AT_REVISION_1))
    assert (changed.device.name, changed.device.revision) == ("mine", 2)
    assert [device.name for device in db.transact(list_devices, user)[0]] == ["theirs", None]


def test_a_block_laid_after_one_was_lifted_stays(committed: Meeting, db: Database, user: int) -> None:
    block = (changes.revoke, ORIGIN, user, "a", ANY, True)
    db.transact(*block)

    def block_again() -> None:
        db.transact(register, user, "a")
        db.transact(*block)

    committed.run(block_again, changes.allow, ORIGIN, user, "a")
    db.transact(changes.allow, ORIGIN, user, "a")  # else 404


@pytest.mark.parametrize(
    ("work", "args", "refusal"),
    [
        (changes.revoke, ("a", ANY), DeviceNotFound),
        (changes.allow, ("blocked",), BlockNotFound),
    ],
)
def test_a_rival_that_did_the_same_is_the_one_who_did_it(
    work: Callable[..., Any],
    args: tuple[Any, ...],
    refusal: type[AppError],
    not_committed: Meeting,
    db: Database,
    user: int,
) -> None:
    db.transact(revoke, user, "b")
    db.transact(register, user, "blocked")
    db.transact(changes.revoke, ORIGIN, user, "blocked", ANY, True)
    same = (work, ORIGIN, user, *args)
    with pytest.raises(refusal):
        not_committed.run(lambda: db.transact(*same), *same)


def test_a_rival_that_transferred_the_device_is_the_one_who_did_it(
    not_committed: Meeting, db: Database, user: int, newcomer: int
) -> None:
    same = (changes.transfer, SETTINGS, ORIGIN, user, "a", newcomer)
    with pytest.raises(DeviceNotFound):
        not_committed.run(lambda: db.transact(*same), *same)


def test_a_rival_that_set_the_limit_is_the_one_who_set_it(
    not_committed: Meeting, db: Database, user: int
) -> None:
    same = (set_limit, SETTINGS, ORIGIN, user, 5, AT_REVISION_0)
    with pytest.raises(PreconditionFailed):
        not_committed.run(lambda: db.transact(*same), *same)


def test_a_rival_that_took_the_slot_keeps_it(
    not_committed: Meeting, db: Database, auditor: Engine, user: int
) -> None:
    db.transact(revoke, user, "a")
    with pytest.raises(DeviceLimitReached):
        not_committed.run(lambda: db.transact(register, user, "theirs"), register, user, "mine")
    assert devices_of(auditor, user) == ["b", "theirs"]
