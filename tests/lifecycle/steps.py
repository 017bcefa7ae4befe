"""Two calls on one user, step by step: one is held at a point of its transaction while the other moves."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from sqlalchemy import text

from app.db import Database, Tx
from app.settings import load_settings
from tests.proxy import Fate, Proxy
from tests.servers import Server
from tests.services import ROOT_KEY

R = TypeVar("R")
Work = Callable[..., R]

PATIENCE_SECONDS = 10
# InnoDB keeps what it told of transactions until nobody has asked for a tenth of a second.
POLL_SECONDS = 0.12


@contextmanager
def database(url: str, **settings: object) -> Iterator[Database]:
    """One connection only, so that what befell it shows."""
    made = Database(load_settings(database_url=url, root_key=ROOT_KEY, database_pool_size=1, **settings))
    try:
        yield made
    finally:
        made.close()


class ChangedItsMind(Exception):
    """Ends a held transaction without a COMMIT."""


class Held(Generic[R]):
    """A transaction that has done its work, and holds its locks until it is told to end."""

    def __init__(self) -> None:
        self._has_worked, self._may_end = threading.Event(), threading.Event()
        self._rolls_back = False
        self._running: Future[R]

    def start(self, threads: ThreadPoolExecutor, db: Database, work: Work[R], *args: Any) -> None:
        self._running = threads.submit(db.transact, self._work_and_wait, work, *args)
        assert self._has_worked.wait(PATIENCE_SECONDS)

    def _work_and_wait(self, tx: Tx, work: Work[R], *args: Any) -> R:
        result = work(tx, *args)
        self._has_worked.set()
        assert self._may_end.wait(PATIENCE_SECONDS)
        if self._rolls_back:
            raise ChangedItsMind
        return result

    def commit(self) -> R:
        self._may_end.set()
        return self._running.result(PATIENCE_SECONDS)

    def roll_back(self) -> None:
        self._rolls_back = True
        self._may_end.set()
        assert isinstance(self._running.exception(PATIENCE_SECONDS), ChangedItsMind)

    def let_go(self) -> None:
        self._may_end.set()


@contextmanager
def held(db: Database, work: Work[R], *args: Any) -> Iterator[Held[R]]:
    """`work` is done, and its COMMIT waits for the test. Ends by COMMIT if the test says nothing."""
    call = Held[R]()
    with ThreadPoolExecutor(1) as threads:
        try:
            call.start(threads, db, work, *args)
            yield call
        finally:
            call.let_go()


@contextmanager
def waiting(server: Server, db: Database, work: Work[R], *args: Any) -> Iterator[Future[R]]:
    """`work` is under way in a thread and waits for a row lock that somebody has. `db` has one connection."""
    connection = db.transact(connection_id)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(db.transact, work, *args)
        wait_until_it_waits(server, connection, running)
        yield running


def connection_id(tx: Tx) -> int:
    found: int = tx.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
    return found


def wait_until_it_waits(server: Server, connection: int, running: Future[Any]) -> None:
    """Polled: neither server tells anybody when a session begins to wait."""
    query = text(
        "SELECT trx_state FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = :connection"
    )
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    with server.admin_connection() as admin:
        while admin.execute(query, {"connection": connection}).scalar() != "LOCK WAIT":
            assert not running.done(), f"did not wait: {running.exception() or running.result()}"
            assert time.monotonic() < give_up_at, "did not get as far as a lock"
            time.sleep(POLL_SECONDS)


def in_the_past(tx: Tx, seconds: int, work: Work[R], *args: Any) -> R:
    """`work` by a database clock that is so many seconds behind: it began before what is now in the past."""
    tx.exec_driver_sql(f"SET SESSION timestamp = UNIX_TIMESTAMP() - {seconds:d}")
    try:
        return work(tx, *args)
    finally:
        tx.exec_driver_sql("SET SESSION timestamp = DEFAULT")


def before_first(proxy: Proxy, words: str, do: Callable[[], object]) -> None:
    """Have the proxy call `do` when the first statement with these words comes, before the server sees it."""
    done: list[str] = []

    def decide(statement: str) -> Fate:
        if words in statement and not done:
            done.append(statement)
            do()
        return Fate.PASS

    proxy.fate = decide
