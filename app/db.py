"""The database: pools of READ COMMITTED connections, and the only begin, commit and run-again.

A use case is a function `work(tx, *args)` that only talks to `tx`, since it may run more than once.
"""

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Self, TypeVar

from anyio import to_thread
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from app import duties, metrics, recording, retries, sessions, tracing
from app.errors import Contention, DatabaseUnavailable, Overloaded
from app.failures import GONE, Failure, failure_of
from app.nodes import NOBODY, Node, Nodes
from app.retries import SHORTEST_RUN_SECONDS, CommitUncertain, Earlier
from app.settings import Settings

log = logging.getLogger(__name__)

Tx = Connection
R = TypeVar("R")
Work = Callable[Concatenate[Tx, ...], R]

# A row that is missing again each time it was made: somebody deletes lock rows.
MOST_PRELIMINARIES = 10


class RunFirst(Exception):
    """Raised by work: roll back, run `work(tx, *args)` in a transaction of its own, then start again."""

    def __init__(self, work: Work[None], *args: Any) -> None:
        super().__init__(work, *args)
        self.work = work
        self.args_of_work = args


def uncertain_result(tx: Tx) -> Any:
    """What an earlier run of this same work gave, if its COMMIT may or may not have happened; else None."""
    return tx.get_execution_options().get("uncertain_result")


def is_multi_writer(tx: Tx) -> bool:
    """Whether other nodes than this connection's may write, where a row lock alone holds nobody back."""
    return bool(tx.info.get("multi_writer", False))


class Database:
    """The nodes and transactions on them. `submit` is for the event loop, `transact` for any other caller.

    Each run of a transaction goes to the node that its user's calls prefer of those that are in use.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._nodes = Nodes(settings)
        self.user_id = NOBODY
        metrics.POOL_SIZE.set(settings.database_pool_size * len(settings.urls))

    @property
    def has_several_writers(self) -> bool:
        """Whether other nodes write as well, as far as a transaction has shown it by now."""
        return self._nodes.several_writers

    def open_connections(self) -> None:
        """Fill the pools, which a first burst of calls would else have to wait for.

        A database that is not there is left to the calls, which say so.
        """
        for node in self._nodes:
            node.open_connections()

    def close(self) -> None:
        self._nodes.close()

    def of_user(self, user_id: int) -> Self:
        """This same database, where all calls prefer one node: the one of this user."""
        if not self._nodes.are_several:
            return self
        own = copy.copy(self)
        own.user_id = user_id
        return own

    def node_of(self, user_id: int) -> Node:
        """Where a call of this user would go now."""
        return self._nodes.node_of(user_id)

    async def submit(
        self, work: Work[R], *args: Any, read_only: bool = False, earlier: Earlier | None = None
    ) -> R:
        """`transact` in a thread, once a connection is free; else what that raises if none is in time.

        Calls wait here and not in threads or in the pool, so that a thread never waits for a connection
        which another waiting thread would have to give back.
        """
        node = self.node_of(self.user_id)
        patience_seconds = self._settings.database_pool_wait_seconds
        if earlier is not None:
            patience_seconds = min(patience_seconds, self._end_of(earlier.began_at) - time.monotonic())
        try:
            with metrics.POOL_WAITING.track_inprogress():
                async with asyncio.timeout(patience_seconds):
                    await node.free_connections.acquire()
        except TimeoutError:
            metrics.POOL_TIMEOUTS.inc()
            with _promising_only_what_holds(_options_of(earlier)):
                raise Overloaded from None
        try:
            with metrics.THREADS_IN_USE.track_inprogress():
                return await to_thread.run_sync(
                    lambda: self.transact(work, *args, read_only=read_only, earlier=earlier),
                    limiter=node.threads,
                )
        finally:
            node.free_connections.release()

    def transact(
        self, work: Work[R], *args: Any, read_only: bool = False, earlier: Earlier | None = None
    ) -> R:
        """Run `work(tx, *args)` in one transaction, commit, and return its result.

        What fails for a passing reason is rolled back and runs again from its start, within the lock budget:
        deadlocks, lock waits, lost connections, failovers, and a COMMIT of unknown outcome. `earlier` is a
        run of `attempt` to go on from. Raises what work raises, or Contention, Overloaded or
        DatabaseUnavailable (503).
        """
        record = recording.Transaction(getattr(work, "__name__", "work"))
        options = {"read_only": read_only} | _options_of(earlier)
        record.uncertain_commits = int("uncertain_result" in options)
        if earlier is not None:
            record.began_at = earlier.began_at
        with self._recorded(record), _promising_only_what_holds(options):
            if earlier is not None and earlier.failure is not None:
                retries.go_on_or_give_up(record, earlier.failure, self._end_of(earlier.began_at))
            return self._run_until_final(record, options, work, *args)

    def attempt(self, node: Node, work: Work[R], *args: Any) -> R:
        """Run `work(tx, *args)` once in one transaction on `node`, commit, and return its result.

        For work that many calls wait for: no lock wait of it lasts longer than a second. Raises what work
        raises, or RunFailed, after which `transact` may go on for each of them.
        """
        record = recording.Transaction(getattr(work, "__name__", "work"))
        with self._recorded(record):
            ends_at = record.began_at + SHORTEST_RUN_SECONDS
            try:
                return self._run_once(node.engine_of_groups, ends_at, {}, work, *args)
            except (CommitUncertain, DBAPIError, NoFreeConnection, sessions.SessionRefused) as error:
                failed = retries.tell_of_attempt(record, error)
                if failed.failure is not None:
                    node.doubt_after(failed.failure)
                raise failed from error

    def _end_of(self, began_at: float) -> float:
        return began_at + self._settings.lock_budget_seconds

    @contextmanager
    def _recorded(self, record: recording.Transaction) -> Iterator[None]:
        try:
            with tracing.transaction_span(record), recording.transaction(record):
                yield
        finally:
            is_told = record.outcome == "given_up" or duties.is_known_to_fail()  # with its seconds
            if record.seconds >= self._settings.slow_transaction_seconds and not is_told:
                log.warning("Slow transaction", extra=record.facts())

    def _run_until_final(
        self, record: recording.Transaction, options: dict[str, Any], work: Work[R], *args: Any
    ) -> R:
        ends_at = self._end_of(record.began_at)
        preliminaries = 0
        failed: Failure | None = None
        while True:
            node = self.node_of(self.user_id)
            try:
                result = self._run_in_pool(node, ends_at, options, work, *args)
            except RunFirst as first:
                preliminaries += 1
                if preliminaries > MOST_PRELIMINARIES:
                    raise DatabaseUnavailable from first
                self.transact(first.work, *first.args_of_work)
            except CommitUncertain as uncertain:
                options["uncertain_result"] = uncertain.result
                record.uncertain_commits += 1
                at_commit = failure_of(uncertain.cause) or GONE
                node.doubt_after(at_commit)
                self._pause_or_give_up(record, ends_at, at_commit, uncertain.cause, failed)
                failed = at_commit
            except DBAPIError as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                node.doubt_after(failure)
                self._pause_or_give_up(record, ends_at, failure, error, failed)
                failed = failure
            except NoFreeConnection as timeout:
                metrics.POOL_TIMEOUTS.inc()
                raise Overloaded from timeout
            except sessions.SessionRefused as refused:
                retries.tell_of_refusal(record, refused)
                raise DatabaseUnavailable from refused
            else:
                retries.tell_if_it_is_back(record, failed)
                return result

    def _run_in_pool(
        self, node: Node, ends_at: float, options: dict[str, Any], work: Work[R], *args: Any
    ) -> R:
        with metrics.POOL_IN_USE.track_inprogress():
            return self._run_once(node.engine, ends_at, options, work, *args)

    def _run_once(
        self, engine: Engine, ends_at: float, options: dict[str, Any], work: Work[R], *args: Any
    ) -> R:
        with engine.connect().execution_options(**options) as tx, recording.Run():
            self._nodes.several_writers = is_multi_writer(tx)
            try:
                sessions.fit_lock_wait(tx, self._settings.lock_wait_seconds, ends_at - time.monotonic())
                result = work(tx, *args)
            except BaseException:
                _roll_back(tx)
                raise
            try:
                tx.commit()
            except DBAPIError as error:
                _roll_back_refused(tx)
                raise CommitUncertain(result, error) from error
            return result

    def _pause_or_give_up(
        self,
        record: recording.Transaction,
        ends_at: float,
        failure: Failure,
        error: DBAPIError,
        before: Failure | None,
    ) -> None:
        most = self._settings.contention_retries
        if most is None:
            most = retries.RETRIES_WITH_SEVERAL_WRITERS if self._nodes.several_writers else retries.RETRIES
        retries.pause_or_give_up(record, most, ends_at, failure, error, before)


def _options_of(earlier: Earlier | None) -> dict[str, Any]:
    """Those of an execution after the runs of `attempt`."""
    if earlier is None or earlier.uncertain_result is None:
        return {}
    return {"uncertain_result": earlier.uncertain_result}


@contextmanager
def _promising_only_what_holds(options: dict[str, Any]) -> Iterator[None]:
    """After a COMMIT of unknown outcome, no answer may say that nothing was changed, whatever ended the call.

    Not even where the server itself refused the COMMIT, as of a deadlock: it may have been carried out.
    """
    try:
        yield
    except (Contention, Overloaded) as promise:
        if "uncertain_result" not in options:
            raise
        raise DatabaseUnavailable from promise.__cause__


def _roll_back(tx: Tx) -> None:
    """Undo everything at once: after 1205 a COMMIT would keep the statements before the one that failed."""
    try:
        tx.rollback()
    except SQLAlchemyError as error:
        _drop(tx, error)


def _roll_back_refused(tx: Tx) -> None:
    """Undo what the server may not have committed, by the driver: for SQLAlchemy no transaction is left.

    Without it the connection would go back to the pool with the lock, and its next user would commit it all.
    """
    if tx.invalidated:
        return
    try:
        tx.dialect.do_rollback(tx.connection)
    except tx.dialect.loaded_dbapi.Error as error:
        _drop(tx, error)


def _drop(tx: Tx, error: Exception) -> None:
    """A connection that cannot roll back may still hold its lock; closing it makes the server let go."""
    tx.invalidate()
    log.warning("ROLLBACK failed, the connection is dropped: %s", error)
