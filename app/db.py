"""The database: pools of READ COMMITTED connections, and the only begin, commit and run-again.

A use case is a function `work(tx, *args)` that only talks to `tx`, since it may run more than once.
"""

import asyncio
import copy
import logging
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, Self, TypeVar

from anyio import to_thread
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from app import dialects, duties, metrics, recording, tracing
from app.errors import DatabaseUnavailable, Overloaded
from app.failures import GONE, UNFIT, Failure, failure_of, number_of
from app.nodes import NOBODY, Node, Nodes
from app.settings import Settings

log = logging.getLogger(__name__)

Tx = Connection
R = TypeVar("R")
Work = Callable[Concatenate[Tx, ...], R]

RETRIES = 5
RETRIES_WITH_SEVERAL_WRITERS = 12  # certification conflicts come in rows when many nodes write one user
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.32
SHORTEST_RUN_SECONDS = 1  # InnoDB counts lock waits in whole seconds, so a run may take this long
# A row that is missing again each time it was made: somebody deletes lock rows.
MOST_PRELIMINARIES = 10


class RunFirst(Exception):
    """Raised by work: roll back, run `work(tx, *args)` in a transaction of its own, then start again."""

    def __init__(self, work: Work[None], *args: Any) -> None:
        super().__init__(work, *args)
        self.work = work
        self.args_of_work = args


class CommitUncertain(Exception):
    """COMMIT failed, so the transaction was committed or not. `result` is what it would have given."""

    def __init__(self, result: Any, cause: DBAPIError) -> None:
        super().__init__(f"at COMMIT: {cause.orig}")
        self.result = result
        self.cause = cause


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
        self._several_writers = False
        metrics.POOL_SIZE.set(settings.database_pool_size * len(settings.urls))

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

    async def submit(self, work: Work[R], *args: Any, read_only: bool = False) -> R:
        """`transact` in a thread, once a connection is free; Overloaded (503) if none is in time.

        Calls wait here and not in threads or in the pool, so that a thread never waits for a connection
        which another waiting thread would have to give back.
        """
        node = self.node_of(self.user_id)
        try:
            with metrics.POOL_WAITING.track_inprogress():
                async with asyncio.timeout(self._settings.database_pool_wait_seconds):
                    await node.free_connections.acquire()
        except TimeoutError:
            metrics.POOL_TIMEOUTS.inc()
            raise Overloaded from None
        try:
            with metrics.THREADS_IN_USE.track_inprogress():
                return await to_thread.run_sync(
                    lambda: self.transact(work, *args, read_only=read_only), limiter=node.threads
                )
        finally:
            node.free_connections.release()

    def transact(self, work: Work[R], *args: Any, read_only: bool = False) -> R:
        """Run `work(tx, *args)` in one transaction, commit, and return its result.

        What fails for a passing reason is rolled back and runs again from its start, within the lock budget:
        deadlocks, lock waits, lost connections, failovers, and a COMMIT of unknown outcome. Raises what work
        raises, or Contention, Overloaded or DatabaseUnavailable (503).
        """
        record = recording.Transaction(getattr(work, "__name__", "work"))
        try:
            with tracing.transaction_span(record), recording.transaction(record):
                return self._run_until_final(record, {"read_only": read_only}, work, *args)
        finally:
            is_told = record.outcome == "given_up" or duties.is_known_to_fail()  # with its seconds
            if record.seconds >= self._settings.slow_transaction_seconds and not is_told:
                log.warning("Slow transaction", extra=record.facts())

    def _run_until_final(
        self, record: recording.Transaction, options: dict[str, Any], work: Work[R], *args: Any
    ) -> R:
        ends_at = record.began_at + self._settings.lock_budget_seconds
        preliminaries = 0
        failed: Failure | None = None
        while True:
            node = self.node_of(self.user_id)
            try:
                result = self._run_once(node, ends_at, options, work, *args)
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
                if "uncertain_result" in options:  # «nothing was changed» may no longer be said
                    failure = replace(failure, answer=DatabaseUnavailable)
                self._pause_or_give_up(record, ends_at, failure, error, failed)
                failed = failure
            except NoFreeConnection as timeout:
                metrics.POOL_TIMEOUTS.inc()
                raise Overloaded from timeout
            except dialects.SessionRefused as refused:
                _tell_of_refusal(record, refused)
                raise DatabaseUnavailable from refused
            else:
                _tell_if_it_is_back(record, failed)
                return result

    def _run_once(self, node: Node, ends_at: float, options: dict[str, Any], work: Work[R], *args: Any) -> R:
        with (
            metrics.POOL_IN_USE.track_inprogress(),
            node.engine.connect().execution_options(**options) as tx,
            recording.Run(),
        ):
            self._several_writers = is_multi_writer(tx)
            try:
                dialects.fit_lock_wait(tx, self._settings.lock_wait_seconds, ends_at - time.monotonic())
                result = work(tx, *args)
            except BaseException:
                _roll_back(tx)
                raise
            try:
                tx.commit()
            except DBAPIError as error:
                _roll_back(tx)
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
        """Wait with full jitter before the next run, or raise the failure's answer if there can be none.

        `before` is what failed the run before this one.
        """
        record.run_failed(failure.kind, number_of(error))
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**record.retries)
        pause_seconds = random.uniform(0, longest)  # noqa: S311 - spreads load, guards no secret
        in_time = time.monotonic() + pause_seconds + SHORTEST_RUN_SECONDS <= ends_at
        too_often = failure.is_counted and record.retries >= self._most_retries()
        if too_often or not (failure.run_again and in_time):
            if failure.run_again:
                metrics.RETRIES_USED_UP.inc()
            if not duties.tells_of(failure.answer):
                log.error("Gave up after run %d: %s", record.attempts, error.orig, extra=record.facts())
            raise failure.answer from error
        log.log(
            logging.WARNING if duties.is_news(failure, before) else logging.DEBUG,
            "Run %d failed, the transaction runs again: %s",
            record.attempts,
            error.orig,
            extra=record.facts(),
        )
        record.retries += 1
        metrics.RETRIES.inc()
        time.sleep(pause_seconds)

    def _most_retries(self) -> int:
        if self._settings.contention_retries is not None:
            return self._settings.contention_retries
        return RETRIES_WITH_SEVERAL_WRITERS if self._several_writers else RETRIES


def _tell_of_refusal(record: recording.Transaction, refused: dialects.SessionRefused) -> None:
    record.run_failed(UNFIT.kind)
    if not duties.tells_of(UNFIT.answer):
        log.error("%s", refused)


def _tell_if_it_is_back(record: recording.Transaction, failed: Failure | None) -> None:
    if failed is not None and not failed.is_counted and not duties.is_known_to_fail():
        log.info("Run %d went through, the database is back", record.attempts, extra=record.facts())


def _roll_back(tx: Tx) -> None:
    """Undo everything at once: after 1205 a COMMIT would keep the statements before the one that failed."""
    try:
        tx.rollback()
    except SQLAlchemyError as error:
        # A connection that cannot roll back may still hold its lock; closing it makes the server let go.
        tx.invalidate()
        log.warning("ROLLBACK failed, the connection is dropped: %s", error)
