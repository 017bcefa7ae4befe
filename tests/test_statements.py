"""What goes over the wire: the lock protocol costs no round trip that it does not need."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import Engine

from app.db import Database, Tx
from app.devices import changes, service
from app.devices.schemas import NewDevice
from app.devices.service import Registered
from app.errors import DeviceLimitReached
from app.settings import load_settings
from tests.lifecycle.rows import let_lease_end, put_devices
from tests.proxy import Proxy, proxied
from tests.services import ROOT_KEY
from tests.use_cases import ORIGIN, list_devices, register, revoke

pytestmark = pytest.mark.locking


class Wire:
    """A database behind a proxy, and what each transaction sent."""

    def __init__(self, proxy: Proxy, database: Database) -> None:
        self._proxy = proxy
        self.db = database

    def sent(self, work: Callable[..., object], *args: object) -> list[str]:
        """The statements of one transaction, each by its first words."""
        self._proxy.statements.clear()
        with suppress(DeviceLimitReached):
            self.db.transact(work, *args)
        return [_kind(statement) for statement in self._proxy.statements]


def _kind(statement: str) -> str:
    if "FOR UPDATE" in statement:
        return "LOCK" if "device_registration_locks" in statement else "LOCK DEVICES"
    if re.search(r"SET version=\(?device_registration_locks.version \+ 1", statement):
        return "LOCK BY WRITE"
    return (
        " ".join(statement.split()[:2]) if statement.startswith("INSERT") else statement.split(maxsplit=1)[0]
    )


@pytest.fixture(params=["off", "on"])
def wire(request: pytest.FixtureRequest, database_url: str) -> Iterator[Wire]:
    with proxied(database_url) as (proxy, url):
        settings = load_settings(
            database_url=url, root_key=ROOT_KEY, database_pool_size=1, multi_writer=request.param
        )
        database = Database(settings)
        database.transact(list_devices, 1)  # the first connection also asks what the server is
        yield Wire(proxy, database)
        database.close()


@pytest.fixture
def lock(request: pytest.FixtureRequest) -> str:
    return "LOCK BY WRITE" if request.node.callspec.params["wire"] == "on" else "LOCK"


def test_a_user_who_has_registered_before_costs_five_statements_commit_included(
    wire: Wire, lock: str, new_user: Callable[[], int]
) -> None:
    user = new_user()
    wire.sent(register, user, "a")
    assert wire.sent(register, user, "b") == [
        lock,
        "SELECT",
        "INSERT INTO",
        "INSERT INTO",
        "COMMIT",
    ]


def test_a_new_user_s_lock_row_is_made_in_a_transaction_of_its_own(
    wire: Wire, lock: str, new_user: Callable[[], int]
) -> None:
    sent = wire.sent(register, new_user(), "a")
    assert sent[:4] == [lock, "ROLLBACK", "INSERT IGNORE", "COMMIT"]
    assert sent[4:] == [lock, "SELECT", "INSERT INTO", "INSERT INTO", "COMMIT"]


def test_a_refusal_is_rolled_back(wire: Wire, lock: str, new_user: Callable[[], int]) -> None:
    user = new_user()
    for device in ("a", "b"):
        wire.sent(register, user, device)
    assert wire.sent(register, user, "c") == [lock, "SELECT", "ROLLBACK"]


def test_a_known_device_costs_four_statements(wire: Wire, lock: str, new_user: Callable[[], int]) -> None:
    user = new_user()
    wire.sent(register, user, "a")
    assert wire.sent(register, user, "a") == [lock, "SELECT", "UPDATE", "COMMIT"]


def test_a_revocation_takes_the_lock_first(wire: Wire, lock: str, new_user: Callable[[], int]) -> None:
    user = new_user()
    wire.sent(register, user, "a")
    assert wire.sent(revoke, user, "a") == [lock, "SELECT", "SELECT", "DELETE", "INSERT INTO", "COMMIT"]


def test_reads_take_no_lock(wire: Wire, new_user: Callable[[], int]) -> None:
    user = new_user()
    wire.sent(register, user, "a")
    assert wire.sent(list_devices, user) == ["SELECT", "SELECT", "COMMIT"]


def register_with_a_lease(tx: Tx, user_id: int, device_id: str) -> Registered:
    return register(tx, user_id, device_id, lease_seconds=3600)


def test_a_lease_that_has_not_run_out_costs_no_statement(
    wire: Wire, lock: str, new_user: Callable[[], int]
) -> None:
    user = new_user()
    wire.sent(register_with_a_lease, user, "a")
    sent = wire.sent(register_with_a_lease, user, "b")
    assert sent == [lock, "SELECT", "INSERT INTO", "INSERT INTO", "COMMIT"]


def test_what_has_expired_is_locked_removed_told_and_looked_for_once_more(
    wire: Wire, lock: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    wire.sent(register_with_a_lease, user, "a")
    let_lease_end(auditor, user, "a")
    removed = ["LOCK DEVICES", "DELETE", "INSERT INTO"]
    assert wire.sent(register, user, "b") == [
        *(lock, "SELECT", *removed),
        *("SELECT", "INSERT INTO", "INSERT INTO", "COMMIT"),
    ]


def test_a_cap_on_new_devices_costs_one_statement_more(
    wire: Wire, lock: str, new_user: Callable[[], int]
) -> None:
    user = new_user()
    capped = load_settings(root_key=ROOT_KEY, max_registrations_per_day=2)
    wire.sent(register, user, "a")
    sent = wire.sent(service.register, capped, ORIGIN, user, "b", NewDevice())
    assert sent == [lock, "SELECT", "SELECT", "INSERT INTO", "INSERT INTO", "COMMIT"]


def test_a_heartbeat_takes_no_lock_of_the_user(wire: Wire, new_user: Callable[[], int]) -> None:
    user = new_user()
    wire.sent(register_with_a_lease, user, "a")
    assert wire.sent(changes.heartbeat, user, "a") == ["UPDATE", "SELECT", "COMMIT"]


def test_a_batch_of_500_is_revoked_by_as_many_statements_as_one_device(
    wire: Wire, lock: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    wire.sent(register, user, "a")
    put_devices(auditor, user, [f"device-{number}" for number in range(600)])
    sent = wire.sent(changes.revoke_some, ORIGIN, user, None)
    assert sent == [lock, "SELECT", "SELECT", "DELETE", "INSERT INTO", "COMMIT"]
