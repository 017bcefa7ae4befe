"""A page is one instant, locks nothing, reads its own rows and no more, and the pages leave no user out."""

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, text

from app.audit import service
from app.audit.findings import AboveLimit, OrphanLock, TrailBroken
from app.audit.run import Look, pages
from app.audit.service import look_at_limits, look_at_locks, look_at_trails
from app.db import Database, Tx
from app.devices.schemas import NewDevice
from app.devices.service import register as register_at
from app.errors import AppError
from app.etags import Precondition
from app.migrations import migrate
from app.quotas.service import set_limit
from app.sessions import see_one_instant
from app.settings import Settings, load_settings
from app.tables import events
from tests.audit.looks import all_found
from tests.lifecycle.rows import put_devices, run
from tests.proxy import Fate, proxied
from tests.services import ROOT_KEY
from tests.use_cases import LIMIT, ORIGIN, register, revoke

USERS_OF_A_LARGE_TABLE = 60_000
USER = 42


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pages so small that everything meets their ends."""
    monkeypatch.setattr(service, "ROWS_OF_A_PAGE", 3)
    return 3


def through(url: str) -> Settings:
    return load_settings(
        database_url=url, root_key=ROOT_KEY, default_device_limit=LIMIT, database_pool_size=1
    )


@pytest.mark.parametrize("embedded", [False, True], ids=["server", "embedded"])
@pytest.mark.usefixtures("few_rows")
def test_the_ends_of_pages_hide_nothing(own: Settings, folder: Path, embedded: bool) -> None:
    if embedded:
        own = load_settings(
            database_url=f"sqlite:///{folder}/cupo.db", root_key=ROOT_KEY, default_device_limit=LIMIT
        )
        migrate(own)
    db = Database(own)
    ids = [1, 2, 3, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
    lax = own.model_copy(update={"default_device_limit": 9})
    for user_id in ids:
        for number in range(4):
            db.transact(_register_at, lax, user_id, f"d-{number}")
        with suppress(AppError):
            db.transact(revoke, user_id - 7 if user_id > 9 else user_id + 100, "no-such-device")
        db.transact(_lose_an_event, user_id)
    found = all_found(db, own)
    db.close()
    assert sorted(one.user_id for one in found if isinstance(one, AboveLimit)) == ids
    broken = [(one.user_id, one.device_id) for one in found if isinstance(one, TrailBroken)]
    assert sorted(broken) == [(user_id, "d-1") for user_id in ids]
    assert len([one for one in found if isinstance(one, OrphanLock)]) == len(ids)


def _register_at(tx: Tx, settings: Settings, user_id: int, device_id: str) -> object:
    return register_at(tx, settings, ORIGIN, user_id, device_id, NewDevice())


def _lose_an_event(tx: Tx, user_id: int) -> None:
    tx.execute(delete(events).where(events.c.user_id == user_id, events.c.device_id == "d-1"))


@pytest.mark.locking
def test_what_changes_while_a_page_is_read_is_seen_whole_or_not_at_all(
    own: Settings, own_db: Database
) -> None:
    """Between the devices and the trail of a page: one device goes and another comes."""
    own_db.transact(register, USER, "goes")

    def change_before_the_trail(statement: str) -> Fate:
        if "FORCE INDEX (events_by_user)" in statement:
            own_db.transact(revoke, USER, "goes")
            own_db.transact(register, USER, "comes")
            changed.append(statement)
        return Fate.PASS

    changed: list[str] = []
    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        db = Database(through(url))
        proxy.fate = change_before_the_trail
        found = [page.found for page in pages(db, own, look_at_trails)]
        db.close()
    assert (found, len(changed)) == ([[]], 1)


@pytest.mark.locking
@pytest.mark.parametrize("end", ["committed", "rolled back", "raised at once"])
def test_the_next_transaction_of_the_connection_sees_the_newest_again(
    own: Settings, rows: Engine, end: str
) -> None:
    """It may be a registration, whose count must see what the lock's last holder committed."""
    db = Database(own.model_copy(update={"database_pool_size": 1}))

    def look(tx: Tx) -> None:
        see_one_instant(tx)
        if end != "raised at once":
            counted(tx)
        if end != "committed":
            raise KeyError

    def counted(tx: Tx) -> int:
        return int(tx.execute(text("SELECT COUNT(*) FROM devices")).scalar_one())

    def count_twice(tx: Tx) -> tuple[int, int]:
        before = counted(tx)
        put_devices(rows, USER, ["between"])
        return before, counted(tx)

    def write(tx: Tx) -> int:
        return tx.execute(text("DELETE FROM devices")).rowcount

    with suppress(KeyError):
        db.transact(look)
    assert db.transact(count_twice) == (0, 1)
    with suppress(KeyError):
        db.transact(look)
    assert db.transact(write) == 1
    db.close()


@pytest.mark.locking
def test_the_audit_waits_for_no_lock_and_writes_nothing(
    own: Settings, own_db: Database, rows: Engine
) -> None:
    own_db.transact(register, USER, "a")
    put_devices(rows, USER + 1, ["without-a-lock-row"] + [f"d-{n}" for n in range(LIMIT)])
    with rows.connect().execution_options(isolation_level="READ COMMITTED") as holder:
        for table in ("device_registration_locks", "devices", "events"):
            assert holder.execute(text(f"SELECT user_id FROM {table} FOR UPDATE")).all()  # noqa: S608 - our own words
        db = Database(own.model_copy(update={"lock_budget_seconds": 2, "lock_wait_seconds": 1}))
        assert len(all_found(db, own)) == 1 + LIMIT + 1
        db.close()
        holder.rollback()
    with rows.connect() as connection:
        locks = connection.execute(text("SELECT user_id FROM device_registration_locks")).scalars().all()
    assert locks == [USER]


@pytest.mark.locking
@pytest.mark.usefixtures("few_rows")
def test_a_sound_database_is_found_sound_while_everything_changes(own: Settings, own_db: Database) -> None:
    stop = threading.Event()
    lax = own.model_copy(update={"default_device_limit": LIMIT})

    def live(user: int) -> int:
        changes = 0
        for number in range(10_000):
            if stop.is_set():
                return changes
            device = f"d-{number % 3}"
            with suppress(AppError):
                own_db.transact(register, user, device)
                changes += 1
            with suppress(AppError):
                own_db.transact(revoke, user, f"d-{(number + 1) % 3}")
                changes += 1
            own_db.transact(set_limit, lax, ORIGIN, user, 2 + number % 2, Precondition())
        return changes

    auditor = Database(own)
    with ThreadPoolExecutor(4) as threads:
        lives = [threads.submit(live, user) for user in (1, 2, 3, 2**64 - 1)]
        try:
            found = [one for _ in range(40) for one in all_found(auditor, own) if one.is_failure]
        finally:
            stop.set()
        changes = [one.result() for one in lives]
    auditor.close()
    assert found == []
    assert min(changes) > 5, "the users hardly lived"


SEED = """
INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision)
VALUES (1, 'a', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 1)
"""
DOUBLE = """
INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision)
SELECT user_id + :users, device_id, registered_at, last_seen_at, revision FROM devices WHERE user_id <= :most
"""
# A second device of each user, few with a lease; their events; and all else that a user may have.
FILL = """
INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision, lease_seconds, expires_at)
SELECT user_id, 'b', registered_at, last_seen_at, 1, IF(user_id % 20, NULL, 86400),
    IF(user_id % 20, NULL, registered_at + INTERVAL 1 DAY) FROM devices;
INSERT INTO events (user_id, occurred_at, type, device_id, actor, request_id, data)
SELECT user_id, registered_at, 'device.registered', device_id, 'tests', 'r', '{}' FROM devices;
INSERT INTO device_registration_locks SELECT user_id, 0, registered_at FROM devices WHERE device_id = 'a';
INSERT INTO user_quotas SELECT user_id, 2, 1 FROM devices WHERE device_id = 'a';
INSERT INTO device_blocks SELECT user_id, 'c', registered_at FROM devices WHERE device_id = 'a';
ANALYZE TABLE devices, events, device_registration_locks, user_quotas, device_blocks
"""


@pytest.fixture
def large_table(own: Settings, rows: Engine) -> Settings:
    run(rows, SEED)
    users = 1
    while users < USERS_OF_A_LARGE_TABLE:
        run(rows, DOUBLE, users=users, most=USERS_OF_A_LARGE_TABLE - users)
        users *= 2
    for statement in FILL.split(";"):
        run(rows, statement)
    return own


# To find a page's end, the keys of its rows are read once before, and to count them once after. limits reads
# each row and looks up an own limit; trails finds an end in two tables and reads both; locks looks into five.
READS_OF_A_ROW = {look_at_limits: 5, look_at_trails: 4, look_at_locks: 7}
READS_OF_THE_STATUS = 1000
PAGES_TO_MEASURE = 4
MOST_MEMORY_BYTES = 2_000_000


@pytest.mark.slow
@pytest.mark.locking
def test_pages_of_a_large_table_cost_the_same_wherever_they_are_and_leave_nothing_in_memory(
    large_table: Settings,
) -> None:
    db = Database(large_table.model_copy(update={"database_pool_size": 1}))
    for look, most in READS_OF_A_ROW.items():
        reads = [_reads(db, large_table, look, after) for after in (None, 10_000, 30_000, 50_000)]
        assert max(reads) <= most * service.ROWS_OF_A_PAGE + READS_OF_THE_STATUS, look
        assert max(reads) <= 1.1 * min(reads), look
    tracemalloc.start()
    try:
        some = list(islice(pages(db, large_table, look_at_trails), PAGES_TO_MEASURE))
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY_BYTES
    finally:
        tracemalloc.stop()
    db.close()
    assert [page.found for page in some] == [[]] * PAGES_TO_MEASURE


def _reads(db: Database, settings: Settings, look: Look, after: int | None) -> int:
    """Rows and index entries that the server touched for one page."""

    def told(tx: Tx) -> int:
        status = tx.execute(text("SHOW SESSION STATUS LIKE 'Handler_read_%'")).all()
        return sum(int(value) for _, value in status)

    before = db.transact(told)
    page = db.transact(look, settings, after, read_only=True)
    assert page.until is not None
    return db.transact(told) - before
