"""Imports beside registrations and other imports, on a real server, with real commits."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.db import Database, Tx, uncertain_result
from app.errors import DeviceLimitReached
from app.imports import queries, run
from app.imports.rows import ImportedDevice, Row
from app.imports.service import Batch, Outcome, OverLimit, import_rows
from app.settings import Settings, load_settings
from tests import callers
from tests.callers import by_many, statuses
from tests.imports.files import a_file, outcomes
from tests.lifecycle.rows import let_lease_end, put_devices
from tests.lifecycle.steps import connection_id, database, held, waiting
from tests.lifecycle.trail import devices_of, replayed, types_of
from tests.proxy import Fate, Proxy, proxied
from tests.servers import Server, counted_deadlocks
from tests.services import ROOT_KEY, Service
from tests.use_cases import LIMIT, ORIGIN, register, revoke

pytestmark = pytest.mark.locking

PATIENCE_SECONDS = 60


@pytest.fixture
def limited(database_url: str) -> Settings:
    return load_settings(database_url=database_url, root_key=ROOT_KEY, default_device_limit=LIMIT)


@pytest.fixture
def other(database_url: str) -> Iterator[Database]:
    with database(database_url) as made:
        yield made


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with database(database_url) as made:
        yield made


def test_registrations_meanwhile_never_make_a_user_pass_the_limit(
    server: Server,
    service: Service,
    limited: Settings,
    db: Database,
    auditor: Engine,
    folder: Path,
    new_user: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "ROWS_AT_ONCE", 20)
    users = [new_user() for _ in range(100)]
    file = a_file(folder, users, devices_of_each=3)
    calls = [callers.register(user, f"called-{number}") for user in users for number in range(4)]
    before = counted_deadlocks(server)
    with ThreadPoolExecutor(1) as threads:
        answering = threads.submit(by_many, service, calls, 20)
        imported = outcomes(db, limited, file)
        answers = statuses(answering.result(PATIENCE_SECONDS))
    assert set(answers) <= {201, 409}
    assert set(imported.values()) <= {Outcome.IMPORTED, Outcome.OVER_LIMIT}
    for user in users:
        assert replayed(auditor, user, LIMIT).types == {"device.registered": LIMIT}
    assert counted_deadlocks(server) == before


def rows_for(users: Sequence[int], *device_ids: str) -> list[Row]:
    """By user, as an import sorts them."""
    lines = [(user, device_id) for user in users for device_id in device_ids]
    return [
        Row(number, ImportedDevice.model_validate({"user_id": str(user), "device_id": device_id}))
        for number, (user, device_id) in enumerate(lines, start=2)
    ]


def kinds(batch: Batch) -> list[Outcome]:
    return [one.outcome for one in batch.decisions]


@pytest.fixture
def full_but_one(db: Database, new_user: Callable[[], int]) -> list[int]:
    """Three users with room for one more device."""
    users = [new_user() for _ in range(LIMIT + 1)]
    for user in users:
        db.transact(register, user, "before")
    return users


def test_an_import_waits_for_a_registration_and_counts_its_device(
    server: Server, limited: Settings, db: Database, other: Database, full_but_one: list[int], auditor: Engine
) -> None:
    first, second, third = full_but_one
    work = (import_rows, limited, ORIGIN, OverLimit.SKIP, rows_for(full_but_one, "moved-in"))
    with held(other, register, second, "held") as registering, waiting(server, db, *work) as importing:
        registering.commit()
        batch = importing.result(PATIENCE_SECONDS)
    assert kinds(batch) == [Outcome.IMPORTED, Outcome.OVER_LIMIT, Outcome.IMPORTED]
    assert [devices_of(auditor, user) for user in (first, second, third)] == [
        ["before", "moved-in"],
        ["before", "held"],
        ["before", "moved-in"],
    ]


def test_a_registration_waits_for_an_import_and_counts_its_devices(
    server: Server, limited: Settings, db: Database, other: Database, full_but_one: list[int], auditor: Engine
) -> None:
    work = (import_rows, limited, ORIGIN, OverLimit.SKIP, rows_for(full_but_one, "moved-in"))
    with held(other, *work) as importing, waiting(server, db, register, full_but_one[-1], "late") as late:
        importing.commit()
        with pytest.raises(DeviceLimitReached):
            late.result(PATIENCE_SECONDS)
    assert devices_of(auditor, full_but_one[-1]) == ["before", "moved-in"]


def test_without_its_locks_an_import_passes_the_limit(
    limited: Settings,
    db: Database,
    other: Database,
    full_but_one: list[int],
    auditor: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the tests above would say of an import that locks nobody."""
    monkeypatch.setattr(queries, "lock_all", lambda _tx, _users: None)
    work = (import_rows, limited, ORIGIN, OverLimit.SKIP, rows_for(full_but_one, "moved-in"))
    with held(other, register, full_but_one[0], "held"):
        db.transact(*work)
    assert len(devices_of(auditor, full_but_one[0])) == LIMIT + 1


def test_keep_passes_the_limit_and_then_nobody_new_registers(
    limited: Settings, db: Database, full_but_one: list[int], auditor: Engine
) -> None:
    work = (import_rows, limited, ORIGIN, OverLimit.KEEP, rows_for(full_but_one, "a", "b", "c"))
    assert set(kinds(db.transact(*work))) == {Outcome.IMPORTED}
    for user in full_but_one:
        assert len(devices_of(auditor, user)) == 4
        with pytest.raises(DeviceLimitReached):
            db.transact(register, user, "one-more")


def test_what_has_expired_makes_room_and_is_told_before(
    limited: Settings, db: Database, new_user: Callable[[], int], auditor: Engine
) -> None:
    user, its_own = new_user(), new_user()
    for one in (user, its_own):
        put_devices(auditor, one, ["gone", "there"])
        let_lease_end(auditor, one, "gone")
    rows = [*rows_for([user], "new", "newer"), *rows_for([its_own], "gone", "there")]
    batch = db.transact(import_rows, limited, ORIGIN, OverLimit.SKIP, rows)
    assert kinds(batch) == [Outcome.IMPORTED, Outcome.OVER_LIMIT, Outcome.IMPORTED, Outcome.KNOWN]
    for one in (user, its_own):
        assert types_of(auditor, one) == ["device.expired", "device.registered"]
        replayed(auditor, one, LIMIT, moved_in=["gone", "there"])


@pytest.mark.parametrize("fate", [Fate.CUT_BEFORE, Fate.CUT_AFTER], ids=["not-committed", "committed"])
def test_a_batch_whose_commit_may_have_happened_is_there_once_and_counted_as_imported(
    limited: Settings, database_url: str, fate: Fate, new_user: Callable[[], int], auditor: Engine
) -> None:
    users = [new_user() for _ in range(3)]
    work = (import_rows, limited, ORIGIN, OverLimit.SKIP, rows_for(users, "a", "b", "c"))
    with proxied(database_url) as (proxy, url), database(url) as behind:
        behind.transact(queries.insert_lock_rows, users)
        fates = iter([fate])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS
        batch = behind.transact(*work)
    assert next(fates, None) is None, "no COMMIT was lost"
    assert kinds(batch) == [Outcome.IMPORTED, Outcome.IMPORTED, Outcome.OVER_LIMIT] * 3
    assert all(replayed(auditor, user, LIMIT).devices == {"a", "b"} for user in users)


def test_a_device_revoked_after_its_batch_does_not_rise_again(
    limited: Settings, database_url: str, db: Database, full_but_one: list[int], auditor: Engine
) -> None:
    """The COMMIT happened, its answer was lost, and a rival came before the batch ran again."""
    user = full_but_one[0]
    came = []

    def after_a_rival(tx: Tx) -> Batch:
        if uncertain_result(tx) is not None:
            came.append(db.transact(revoke, user, "moved-in"))
        return import_rows(tx, limited, ORIGIN, OverLimit.SKIP, rows_for(full_but_one, "moved-in"))

    with proxied(database_url) as (proxy, url), database(url) as behind:
        behind.transact(connection_id)
        fates = iter([Fate.CUT_AFTER])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS
        batch = behind.transact(after_a_rival)
    assert len(came) == 1
    assert kinds(batch) == [Outcome.IMPORTED] * 3
    assert devices_of(auditor, user) == ["before"]


def test_two_imports_of_the_same_file_at_once_import_each_device_once(
    server: Server,
    limited: Settings,
    db: Database,
    other: Database,
    folder: Path,
    new_user: Callable[[], int],
    auditor: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "ROWS_AT_ONCE", 20)
    users = [new_user() for _ in range(200)]
    file = a_file(folder, users, devices_of_each=3)
    before = counted_deadlocks(server)
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(outcomes, one, limited, file) for one in (db, other)]
        for one in running:
            assert set(one.result(PATIENCE_SECONDS).values()) <= set(Outcome)
    for user in users:
        assert replayed(auditor, user, LIMIT).types == {"device.registered": LIMIT}
    assert counted_deadlocks(server) == before


@pytest.mark.parametrize(("multi_writer", "locks"), [("off", ["LOCK"]), ("on", ["LOCK", "UPDATE"])])
def test_a_batch_of_500_devices_costs_a_handful_of_statements(
    database_url: str,
    limited: Settings,
    folder: Path,
    new_user: Callable[[], int],
    multi_writer: str,
    locks: list[str],
) -> None:
    users = [new_user() for _ in range(250)]
    file = a_file(folder, users, devices_of_each=2)
    with proxied(database_url) as (proxy, url), database(url, multi_writer=multi_writer) as behind:
        look = ["SELECT", "SELECT", "COMMIT"]
        made = ["LOCK", "ROLLBACK", "SELECT", "INSERT", "COMMIT"]
        read = ["SELECT"] * 5  # clock, devices of each user, own limits, known, blocked
        assert sent(proxy, behind, limited, file) == [
            *look, *made, *locks, *read, "INSERT", "INSERT", "COMMIT",
        ]  # fmt: skip
        assert sent(proxy, behind, limited, file) == look


def sent(proxy: Proxy, db: Database, settings: Settings, file: Path) -> list[str]:
    """The kinds of the statements of the file's batches, without the clock that the reading begins with."""
    db.transact(connection_id)
    proxy.statements.clear()
    outcomes(db, settings, file)
    assert proxy.statements[1] == "COMMIT"
    return [
        "LOCK" if "FOR UPDATE" in statement else statement.split(maxsplit=1)[0]
        for statement in proxy.statements[2:]
    ]
