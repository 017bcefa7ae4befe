"""After a COMMIT of unknown outcome no answer says that nothing was changed, whatever ends the call."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from sqlalchemy import Engine

from app.db import Database, RunFirst, Tx, uncertain_result
from app.devices.service import Registered
from app.errors import Contention, DatabaseUnavailable, Overloaded
from app.failures import DEADLOCK
from app.quotas import queries as quotas
from app.retries import RETRIES, Earlier
from tests.lifecycle.steps import connection_id, database, held
from tests.lifecycle.trail import devices_of
from tests.proxy import Fate, Proxy, proxied
from tests.servers import Server
from tests.use_cases import register

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]


def lose_first_commit(proxy: Proxy) -> None:
    fates = iter([Fate.CUT_BEFORE])
    proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS


@contextmanager
def commit_answered(server: Server, database_url: str, errno: int, *, kept: bool) -> Iterator[bytes]:
    """A statement of as many bytes as COMMIT, which the server answers by this error; `kept`, it commits."""
    name = database_url.rpartition("/")[2].partition("?")[0]
    with server.admin_connection(name) as admin:
        admin.exec_driver_sql(
            f"CREATE PROCEDURE c() BEGIN {'COMMIT;' if kept else ''}"
            f" SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {errno}; END"
        )
        admin.exec_driver_sql(f"GRANT EXECUTE ON PROCEDURE c TO '{server.app_user}'@'%%'")
        try:
            yield b"CALL c"
        finally:
            admin.exec_driver_sql("DROP PROCEDURE c")


@pytest.mark.parametrize("kept", [False, True], ids=["not-committed", "committed"])
@pytest.mark.parametrize("errno", [1213, 1205])
def test_a_commit_that_the_server_refuses_runs_again_and_is_no_contention_in_the_end(
    errno: int, kept: bool, server: Server, database_url: str, auditor: Engine, new_user: NewUser
) -> None:
    """As Galera does: a deadlock at COMMIT is its word for a lost certification, carried out or not."""
    if not server.is_private:
        pytest.skip("may make no procedure")
    user = new_user()
    with (
        proxied(database_url) as (proxy, url),
        database(url) as db,
        database(database_url, lock_budget_seconds=2, lock_wait_seconds=1) as rival,
        commit_answered(server, database_url, errno, kept=kept) as call,
    ):
        db.transact(quotas.insert_lock_row, user)
        proxy.rewrite = lambda payload: payload.replace(b"COMMIT", call)
        with pytest.raises(DatabaseUnavailable):
            db.transact(register, user, "a")
        assert proxy.statements.count(call.decode()) == 1 + RETRIES
        assert rival.transact(register, user, "b").created  # the lock is free
        proxy.rewrite = lambda payload: payload
        db.transact(connection_id)  # by the same connection
    assert devices_of(auditor, user) == (["a", "b"] if kept else ["b"])


@pytest.mark.parametrize("nested", [False, True], ids=["its-lock", "a-lock-row-to-be-made"])
def test_a_lock_that_is_held_after_an_uncertain_commit_is_no_contention(
    nested: bool, database_url: str, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    with (
        ExitStack() as ends,
        database(database_url) as rival,
        proxied(database_url) as (proxy, url),
        database(url, lock_budget_seconds=2, lock_wait_seconds=1) as db,
    ):
        runs = []

        def register_beside_a_rival(tx: Tx) -> Registered:
            runs.append(uncertain_result(tx))
            if len(runs) == 2:
                ends.enter_context(held(rival, quotas.lock_user, user))
            if runs[-1] and nested:
                raise RunFirst(quotas.lock_user, user)
            return register(tx, user, "a")

        db.transact(quotas.insert_lock_row, user)
        lose_first_commit(proxy)
        with pytest.raises(DatabaseUnavailable):
            db.transact(register_beside_a_rival)
    assert len(runs) >= 2
    assert devices_of(auditor, user) == []


def test_no_free_connection_after_an_uncertain_commit_is_not_overloaded(
    database_url: str, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = new_user()
    with (
        proxied(database_url) as (proxy, url),
        database(url, database_pool_wait_seconds=1) as db,
        ExitStack() as ends,
    ):
        db.transact(quotas.insert_lock_row, user)
        lose_first_commit(proxy)
        # The pause before the next run, in which another call takes the only connection.
        taken = held(db, connection_id)
        monkeypatch.setattr("app.retries.time.sleep", lambda _seconds: ends.enter_context(taken))
        with pytest.raises(DatabaseUnavailable):
            db.transact(register, user, "a")


OF_A_GROUP = pytest.mark.parametrize("is_uncertain", [False, True], ids=["rolled-back", "uncertain"])


@OF_A_GROUP
def test_a_call_that_waits_in_vain_after_its_group_is_overloaded_only_if_that_changed_nothing(
    is_uncertain: bool, db: Database, database_url: str, new_user: NewUser
) -> None:
    user = new_user()
    done = db.transact(register, user, "a") if is_uncertain else None

    async def wait_in_vain(full: Database) -> None:
        await full.node_of(user).free_connections.acquire()
        await full.submit(register, user, "a", earlier=Earlier(time.monotonic(), uncertain_result=done))

    answer = DatabaseUnavailable if is_uncertain else Overloaded
    with database(database_url, database_pool_wait_seconds=1) as full, pytest.raises(answer):
        asyncio.run(wait_in_vain(full))


@OF_A_GROUP
def test_a_call_that_has_no_time_left_after_its_group_is_contention_only_if_that_changed_nothing(
    is_uncertain: bool, db: Database, new_user: NewUser
) -> None:
    user = new_user()
    done = db.transact(register, user, "a") if is_uncertain else None
    too_late = Earlier(time.monotonic() - 60, DEADLOCK, uncertain_result=done)
    with pytest.raises(DatabaseUnavailable if is_uncertain else Contention):
        db.transact(register, user, "a", earlier=too_late)
