"""Connections that die, commits that fail, locks that others hold: what the caller sees, and what is left."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, create_engine, text

from app.db import Database, Tx, uncertain_result
from app.devices.service import Registered
from app.errors import Contention, DatabaseUnavailable
from app.quotas import queries as quotas
from app.settings import Settings, load_settings
from tests.databases import migrated_database
from tests.proxy import Fate, proxied
from tests.servers import Server, counted_deadlocks, private_server
from tests.services import ROOT_KEY
from tests.use_cases import register, revoke

pytestmark = pytest.mark.locking


@contextmanager
def database(url: str, **settings: object) -> Iterator[Database]:
    """One connection only, so that what befell it shows."""
    made = Database(load_settings(database_url=url, root_key=ROOT_KEY, database_pool_size=1, **settings))
    try:
        yield made
    finally:
        made.close()


def connection_id(tx: Tx) -> int:
    found: int = tx.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
    return found


def kill(auditor: Engine, connection: int) -> None:
    with auditor.connect() as tx:
        tx.exec_driver_sql(f"KILL {connection:d}")


def rows_of(auditor: Engine, user_id: int) -> list[str]:
    with auditor.connect() as tx:
        query = text("SELECT device_id FROM devices WHERE user_id = :user ORDER BY device_id")
        return list(tx.execute(query, {"user": user_id}).scalars())


def first_registration_ever(db: Database, user_id: int) -> None:
    """So that the lock row is there, and what follows is one transaction."""
    db.transact(register, user_id, "first")
    db.transact(revoke, user_id, "first")


@contextmanager
def lock_held_elsewhere(url: str, user_id: int) -> Iterator[None]:
    engine = create_engine(url)
    with engine.connect() as tx:
        query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
        assert tx.execute(text(query), {"user": user_id}).all()
        yield
        tx.rollback()
    engine.dispose()


def test_a_lock_held_past_the_budget_is_contention_and_the_connection_serves_the_next_call(
    database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    with database(database_url, lock_budget_seconds=3, lock_wait_seconds=1) as db:
        first_registration_ever(db, user)
        before = db.transact(connection_id)
        with lock_held_elsewhere(database_url, user):
            began = time.monotonic()
            with pytest.raises(Contention):
                db.transact(register, user, "a")
            assert time.monotonic() - began < 3.5
        assert rows_of(auditor, user) == []
        assert db.transact(register, user, "a").created
        assert db.transact(connection_id) == before


def test_a_lock_wait_near_the_end_of_the_budget_is_shortened_and_the_session_set_right_again(
    database_url: str, new_user: Callable[[], int]
) -> None:
    user = new_user()

    def lock_wait(tx: Tx) -> int:
        found: int = tx.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar_one()
        return found

    with (
        proxied(database_url) as (proxy, url),
        database(url, lock_budget_seconds=4, lock_wait_seconds=2) as db,
    ):
        first_registration_ever(db, user)
        with lock_held_elsewhere(database_url, user), pytest.raises(Contention):
            db.transact(register, user, "a")
        assert proxy.statements[-3].startswith("SET SESSION innodb_lock_wait_timeout = 1")
        assert "FOR UPDATE" in proxy.statements[-2]
        assert db.transact(lock_wait) == 2


def test_a_lock_wait_undoes_the_whole_transaction_not_only_its_statement(
    database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user, held = new_user(), new_user()

    def register_then_wait(tx: Tx) -> None:
        register(tx, user, "a")
        quotas.lock_user(tx, held)

    with database(database_url, lock_budget_seconds=2, lock_wait_seconds=1) as db:
        first_registration_ever(db, user)
        first_registration_ever(db, held)
        with lock_held_elsewhere(database_url, held), pytest.raises(Contention):
            db.transact(register_then_wait)
        assert rows_of(auditor, user) == []


def test_a_connection_killed_while_idle_is_replaced_unseen(
    database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    with database(database_url) as db:
        first_registration_ever(db, user)
        kill(auditor, db.transact(connection_id))
        assert db.transact(register, user, "a").created
    assert rows_of(auditor, user) == ["a"]


def test_a_connection_killed_in_mid_transaction_is_replaced_unseen(
    database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    runs = []

    def register_and_die_once(tx: Tx) -> Registered:
        done = register(tx, user, "a")
        runs.append(done)
        if len(runs) == 1:
            kill(auditor, connection_id(tx))
            connection_id(tx)
        return done

    with database(database_url) as db:
        first_registration_ever(db, user)
        assert db.transact(register_and_die_once).created
    assert len(runs) == 2
    assert rows_of(auditor, user) == ["a"]


@pytest.mark.parametrize("fate", [Fate.CUT_BEFORE, Fate.CUT_AFTER])
def test_a_connection_lost_at_commit_is_replaced_unseen(
    fate: Fate, database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    """Whether the server has carried the COMMIT out or not, the caller sees one registration, its own."""
    user = new_user()
    with proxied(database_url) as (proxy, url), database(url) as db:
        first_registration_ever(db, user)
        fates = iter([fate])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS
        done = db.transact(register, user, "a")
        assert proxy.statements.count("COMMIT") >= 2
    assert done.created
    assert done.quota.used == 1
    assert rows_of(auditor, user) == ["a"]


@pytest.mark.parametrize("fate", [Fate.CUT_BEFORE, Fate.CUT_AFTER])
def test_a_revocation_whose_commit_is_lost_is_no_404(
    fate: Fate, database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    with proxied(database_url) as (proxy, url), database(url) as db:
        db.transact(register, user, "a")
        fates = iter([fate])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS
        assert db.transact(revoke, user, "a")
    assert rows_of(auditor, user) == []


def test_a_device_that_another_call_registered_meanwhile_is_not_taken_for_this_call_s(
    database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    """The COMMIT was lost and did not happen; before the second run, a rival registers the same device."""
    user = new_user()
    rival_came: list[Registered] = []

    def register_after_a_rival(tx: Tx) -> Registered:
        if uncertain_result(tx) and not rival_came:
            with database(database_url) as rival:
                rival_came.append(rival.transact(register, user, "a"))
        return register(tx, user, "a")

    with proxied(database_url) as (proxy, url), database(url) as db:
        first_registration_ever(db, user)
        fates = iter([Fate.CUT_BEFORE])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS
        done = db.transact(register_after_a_rival)
    assert rival_came[0].created
    assert not done.created
    assert rows_of(auditor, user) == ["a"]


def test_a_commit_that_keeps_failing_is_never_a_success(
    database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    with proxied(database_url) as (proxy, url), database(url) as db:
        first_registration_ever(db, user)
        proxy.fate = lambda sql: Fate.CUT_BEFORE if sql == "COMMIT" else Fate.PASS
        with pytest.raises(DatabaseUnavailable):
            db.transact(register, user, "a")
    assert rows_of(auditor, user) == []


def test_a_deadlock_runs_again_and_both_succeed(
    server: Server, settings: Settings, new_user: Callable[[], int]
) -> None:
    one, two = new_user(), new_user()
    both_hold_one = threading.Barrier(2)
    first_runs: list[int] = []

    def lock_both(tx: Tx, first: int, second: int) -> None:
        quotas.lock_user(tx, first)
        if len(first_runs) < 2:
            first_runs.append(first)
            both_hold_one.wait(10)
        quotas.lock_user(tx, second)

    db = Database(settings)
    for user in (one, two):
        first_registration_ever(db, user)
    before = counted_deadlocks(server)
    rival = threading.Thread(target=db.transact, args=(lock_both, two, one))
    rival.start()
    db.transact(lock_both, one, two)
    rival.join()
    assert counted_deadlocks(server) == before + 1
    db.close()


def test_a_server_that_turned_read_only_is_left_for_a_new_connection(
    server: Server, database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    """As after a failover, when the address leads to another server than the pooled connection does."""
    user = new_user()
    connections = []

    def register_where_it_can_be_written(tx: Tx) -> Registered:
        connections.append(connection_id(tx))
        set_read_only(server, on=len(connections) == 1)
        return register(tx, user, "a")

    with database(database_url) as db:
        first_registration_ever(db, user)
        try:
            assert db.transact(register_where_it_can_be_written).created
        finally:
            set_read_only(server, on=False)
    assert len(set(connections)) == 2
    assert rows_of(auditor, user) == ["a"]


def test_a_server_that_is_back_within_the_budget_costs_the_caller_only_time(
    pytestconfig: pytest.Config,
) -> None:
    kind = pytestconfig.getoption("--server")
    with (
        private_server(kind) as own,
        migrated_database(own, "cupo_test_restart") as url,
        database(url, lock_budget_seconds=60) as db,
        ThreadPoolExecutor(1) as threads,
    ):
        first_registration_ever(db, 1)
        own.kill()
        waiting = threads.submit(db.transact, register, 1, "a")
        own.start()
        assert waiting.result().created


def set_read_only(server: Server, *, on: bool) -> None:
    with server.admin_connection() as admin:
        admin.exec_driver_sql(f"SET GLOBAL read_only = {int(on)}")


def test_a_client_that_hangs_with_the_lock_is_ended_by_the_database(
    server: Server, database_url: str, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    # Each server has its own way; the other setting stays at its minute.
    short = {"idle_transaction_seconds" if server.kind == "mariadb" else "idle_connection_seconds": 5}
    with database(database_url, **short) as hanging, database(database_url, lock_budget_seconds=20) as db:
        first_registration_ever(db, user)
        locked, may_end = threading.Event(), threading.Event()

        def hang(tx: Tx) -> None:
            quotas.lock_user(tx, user)
            if not locked.is_set():
                locked.set()
                may_end.wait(60)

        def hold() -> None:
            with pytest.raises(DatabaseUnavailable):  # its connection is gone, and its budget as well
                hanging.transact(hang)

        holder = threading.Thread(target=hold)
        holder.start()
        assert locked.wait(10)
        assert db.transact(register, user, "a").created
        assert not may_end.is_set()
        may_end.set()
        holder.join()
    assert rows_of(auditor, user) == ["a"]
