"""A COMMIT whose answer is lost: whether it happened or not, the caller sees its success, and one effect."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, text

from app.db import Database, Tx, uncertain_result
from app.devices import changes
from app.devices.schemas import DeviceChange
from app.etags import Precondition
from app.idempotency.queries import Answer
from app.idempotency.service import REPLAYED, Claim, digest, once
from app.quotas.service import set_limit
from app.settings import Settings
from app.users.service import erase_rest
from tests.lifecycle.steps import connection_id, database
from tests.lifecycle.trail import devices_of, types_of
from tests.proxy import Fate, Proxy, proxied
from tests.use_cases import LIMIT, ORIGIN, register, revoke

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]
SETTINGS = Settings.model_construct(default_device_limit=LIMIT, default_lease_seconds=None)
AT_REVISION_1 = Precondition(frozenset({'"1"'}))
AT_REVISION_0 = Precondition(frozenset({'"0"'}))


@dataclass(frozen=True)
class Behind:
    """A database behind a proxy, which does to the next COMMIT what the test is about."""

    db: Database
    proxy: Proxy
    fate: Fate

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """What `work` gives its caller although the first COMMIT of its transaction is lost."""
        self.db.transact(connection_id)  # opening a connection ends by a COMMIT too
        fates = iter([self.fate])
        self.proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS
        self.proxy.statements.clear()
        result = self.db.transact(work, *args)
        assert next(fates, None) is None, "no COMMIT was lost"
        return result


@pytest.fixture(params=[Fate.CUT_BEFORE, Fate.CUT_AFTER], ids=["not-committed", "committed"])
def behind(request: pytest.FixtureRequest, database_url: str) -> Iterator[Behind]:
    with proxied(database_url) as (proxy, url), database(url) as db:
        yield Behind(db, proxy, request.param)


@pytest.fixture
def user(db: Database, new_user: NewUser) -> int:
    """Has the devices `a` and `b`, and no more room."""
    made = new_user()
    for device in ("a", "b"):
        db.transact(register, made, device)
    return made


def has_lock_row(auditor: Engine, user: int) -> bool:
    with auditor.connect() as connection:
        query = text("SELECT 1 FROM device_registration_locks WHERE user_id = :user")
        return connection.execute(query, {"user": user}).first() is not None


def new_events(auditor: Engine, user: int) -> list[str]:
    """Those after the user's first two registrations."""
    return types_of(auditor, user)[2:]


def test_a_change_at_an_if_match_is_made_once(behind: Behind, auditor: Engine, user: int) -> None:
    change = DeviceChange(name="new")
    changed = behind.run(changes.change_device, ORIGIN, user, "a", change, AT_REVISION_1).device
    assert (changed.name, changed.revision) == ("new", 2)
    assert new_events(auditor, user) == ["device.updated"]


def test_a_revocation_with_a_block_is_made_once(behind: Behind, auditor: Engine, user: int) -> None:
    assert behind.run(changes.revoke, ORIGIN, user, "a", AT_REVISION_1, True)
    assert devices_of(auditor, user) == ["b"]
    assert new_events(auditor, user) == ["device.revoked", "device.blocked"]


def test_a_block_is_lifted_once(behind: Behind, db: Database, auditor: Engine, user: int) -> None:
    db.transact(changes.revoke, ORIGIN, user, "a", Precondition(), True)
    assert behind.run(changes.allow, ORIGIN, user, "a")
    assert new_events(auditor, user) == ["device.revoked", "device.blocked", "device.allowed"]


def test_a_transfer_is_made_once(
    behind: Behind, db: Database, auditor: Engine, user: int, new_user: NewUser
) -> None:
    receiver = new_user()
    db.transact(register, receiver, "c")
    moved = behind.run(changes.transfer, SETTINGS, ORIGIN, user, "a", receiver)
    assert (moved.device.user_id, moved.quota.used) == (receiver, 2)
    assert devices_of(auditor, receiver) == ["a", "c"]
    assert new_events(auditor, user) == ["device.transferred"]
    assert types_of(auditor, receiver) == ["device.registered", "device.transferred"]


@pytest.mark.parametrize("limit", [5, 0])
def test_a_limit_is_set_once(limit: int, behind: Behind, auditor: Engine, user: int) -> None:
    quota = behind.run(set_limit, SETTINGS, ORIGIN, user, limit, AT_REVISION_0).quota
    assert (quota.limit, quota.used, quota.revision) == (limit, 2, 1)
    assert new_events(auditor, user) == ["quota.changed"]


def test_a_limit_is_reset_once(behind: Behind, db: Database, auditor: Engine, user: int) -> None:
    db.transact(set_limit, SETTINGS, ORIGIN, user, 5, AT_REVISION_0)
    quota = behind.run(set_limit, SETTINGS, ORIGIN, user, None, AT_REVISION_1).quota
    assert (quota.limit, quota.source, quota.revision) == (LIMIT, "default", 2)
    assert new_events(auditor, user) == ["quota.changed", "quota.changed"]


def test_a_device_is_replaced_once(behind: Behind, auditor: Engine, user: int) -> None:
    done = behind.run(lambda tx: register(tx, user, "c", replace_device_id="a"))
    assert (done.created, done.quota.used) == (True, LIMIT)
    assert devices_of(auditor, user) == ["b", "c"]
    assert new_events(auditor, user) == ["device.replaced", "device.registered"]


def test_an_eviction_is_made_once_and_told_to_its_caller(behind: Behind, auditor: Engine, user: int) -> None:
    done = behind.run(lambda tx: register(tx, user, "c", on_limit="evict_oldest"))
    assert done.created
    assert [device.device_id for device in done.evicted] == ["a"]
    assert devices_of(auditor, user) == ["b", "c"]
    assert new_events(auditor, user) == ["device.evicted", "device.registered"]


def test_revoking_all_is_made_once_and_counted(behind: Behind, auditor: Engine, user: int) -> None:
    batch = behind.run(changes.revoke_some, ORIGIN, user, None)
    assert batch.device_ids == {"a", "b"}
    assert devices_of(auditor, user) == []
    assert new_events(auditor, user) == ["device.revoked", "device.revoked"]


def test_an_erasure_leaves_one_event(behind: Behind, auditor: Engine, user: int) -> None:
    behind.run(erase_rest, ORIGIN, user)
    assert devices_of(auditor, user) == []
    assert types_of(auditor, user) == ["user.erased"]
    assert not has_lock_row(auditor, user)


def claim_of(user: int) -> Claim:
    return Claim((user,), digest(f"a key of {user}"), digest("a request"), keep_seconds=3600)


def render(done: Any) -> Answer:
    return Answer(201, {"ETag": done.device.etag}, done.device.model_dump_json())


def test_a_call_with_a_key_takes_effect_once_and_is_no_replay(
    behind: Behind, db: Database, auditor: Engine, user: int
) -> None:
    db.transact(revoke, user, "a")
    call = (once, claim_of(user), render, register, user, "c")
    answer = behind.run(*call)
    assert answer.status == 201
    assert "Idempotent-Replayed" not in answer.headers
    assert devices_of(auditor, user) == ["b", "c"]
    assert new_events(auditor, user) == ["device.revoked", "device.registered"]
    again = db.transact(*call)
    assert again.headers.items() >= REPLAYED.items()
    assert (again.status, again.body) == (answer.status, answer.body)


def test_a_rival_with_the_same_key_that_was_answered_meanwhile_is_replayed(
    database_url: str, db: Database, auditor: Engine, user: int
) -> None:
    """The COMMIT did not happen: the rival's device is there, and this call's is not."""
    db.transact(revoke, user, "a")
    with proxied(database_url) as (proxy, url), database(url) as behind_proxy:
        behind = Behind(behind_proxy, proxy, Fate.CUT_BEFORE)
        rivals: list[Answer] = []

        def once_after_a_rival(tx: Tx, *call: Any) -> Answer:
            if uncertain_result(tx) and not rivals:
                rivals.append(db.transact(once, claim_of(user), render, register, user, "rival"))
            return once(tx, *call)

        answer = behind.run(once_after_a_rival, claim_of(user), render, register, user, "mine")
    assert answer.body == rivals[0].body
    assert answer.headers.items() >= REPLAYED.items()
    assert devices_of(auditor, user) == ["b", "rival"]
