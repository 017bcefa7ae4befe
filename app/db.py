"""The database: a pool of READ COMMITTED connections, and the only begin, commit and run-again.

A use case is a function `work(tx, *args)` that only talks to `tx`, since it may run more than once.
"""

import asyncio
import logging
import math
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Concatenate, TypeVar

from anyio import CapacityLimiter, to_thread
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection, Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from app import dialects, duties, embedded, metrics, recording, tracing
from app.errors import DatabaseUnavailable, Overloaded
from app.failures import GONE, UNFIT, Failure, failure_of, number_of
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
# Duplicate entry, syntax error near …, incorrect values of several kinds: their text has what a caller sent.
QUOTES_VALUES = frozenset({1062, 1064, 1292, 1366, 1411, 1525, 1586})
_QUOTED = re.compile("'.*'", re.DOTALL)
MOST_GROUPS = 4  # of calls that share a transaction, at once
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


@dataclass(frozen=True, slots=True)
class Earlier:
    """What `attempt` left of a call. `began_at` is when its time began, by the monotonic clock.

    `failure` is what failed the run, if that did fail.
    """

    began_at: float
    failure: Failure | None = None
    uncertain_result: Any = None


class RunFailed(Exception):
    """A run of `Database.attempt` was rolled back, or its COMMIT is uncertain: then with its `result`.

    `failure` is None where it came from a mistake of our own.
    """

    def __init__(self, failure: Failure | None, result: Any = None) -> None:
        super().__init__(failure)
        self.failure = failure
        self.result = result


def uncertain_result(tx: Tx) -> Any:
    """What an earlier run of this same work gave, if its COMMIT may or may not have happened; else None."""
    return tx.get_execution_options().get("uncertain_result")


def is_multi_writer(tx: Tx) -> bool:
    """Whether other nodes than this connection's may write, where a row lock alone holds nobody back."""
    return bool(tx.info.get("multi_writer", False))


def make_engine(settings: Settings, *, pool_size: int, patience_seconds: int | None = None) -> Engine:
    """An engine whose connections are READ COMMITTED, verified, and cost no round trip to check out or in.

    A server that leaves a statement unanswered is given up after `patience_seconds`, by default one second
    after the longest lock wait would have ended.
    """
    url = settings.url
    if url.drivername == "mariadb+pymysql":
        url = url.set(drivername="mysql+pymysql")
    engine = create_engine(
        url,
        connect_args=dialects.connect_arguments(
            url, settings, patience_seconds or math.ceil(settings.lock_budget_seconds) + 1
        ),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=settings.database_pool_wait_seconds,
        pool_recycle=settings.idle_connection_seconds * 3 // 4,  # before the server's wait_timeout ends it
        pool_pre_ping=False,  # a dead connection shows by its error, and the transaction runs again
        pool_reset_on_return=None,  # Database.transact has committed or rolled back by then
        hide_parameters=True,  # what callers sent is no part of an error's text, which goes to the log
    )
    if settings.is_embedded:
        event.listen(engine, "do_connect", embedded.close_to_others)
    dialects.prepare_sessions(engine, settings)
    event.listen(engine, "handle_error", _recognise_lost_session)
    event.listen(engine, "handle_error", _hide_values)
    tracing.watch_statements(engine)
    return engine


def _hide_values(context: ExceptionContext) -> None:
    """Out of the server's own words too, for the same reason as `hide_parameters`."""
    match context.original_exception.args:
        case (int(number), str(words)) if number in QUOTES_VALUES:
            context.original_exception.args = (number, _QUOTED.sub("'…'", words))
            if context.sqlalchemy_exception is not None:  # has them as well
                message, *rest = context.sqlalchemy_exception.args
                context.sqlalchemy_exception.args = (_QUOTED.sub("'…'", message), *rest)


def _recognise_lost_session(context: ExceptionContext) -> None:
    """Have SQLAlchemy drop the connection for each error after which this server or session is of no use."""
    error = context.sqlalchemy_exception
    failure = failure_of(error) if isinstance(error, DBAPIError) else None
    if failure is not None and failure.drop_connection:
        context.is_disconnect = True


class Database:
    """The pool and its transactions. `submit` is for the event loop, `transact` for any other caller."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_engine(settings, pool_size=settings.database_pool_size)
        self._free_connections = asyncio.Semaphore(settings.database_pool_size)
        self._threads = CapacityLimiter(settings.database_pool_size)
        # Of their own: calls that wait for a user's lock may have all of the others.
        self._engine_of_groups = make_engine(settings, pool_size=MOST_GROUPS)
        self._several_writers = False
        metrics.POOL_SIZE.set(settings.database_pool_size)

    @property
    def has_several_writers(self) -> bool:
        """Whether other nodes write as well, as far as a connection has shown it by now."""
        return self._several_writers

    def open_connections(self) -> None:
        """Fill the pool, which a first burst of calls would else have to wait for.

        A database that is not there is left to the calls, which say so.
        """
        with ExitStack() as opened, suppress(SQLAlchemyError, dialects.SessionRefused):
            for _ in range(self._settings.database_pool_size):
                opened.enter_context(self._engine.connect())

    def close(self) -> None:
        self._engine.dispose()
        self._engine_of_groups.dispose()

    async def submit(
        self, work: Work[R], *args: Any, read_only: bool = False, earlier: Earlier | None = None
    ) -> R:
        """`transact` in a thread, once a connection is free; Overloaded (503) if none is in time.

        Calls wait here and not in threads or in the pool, so that a thread never waits for a connection
        which another waiting thread would have to give back.
        """
        patience_seconds = self._settings.database_pool_wait_seconds
        if earlier is not None:
            patience_seconds = min(patience_seconds, self._end_of(earlier.began_at) - time.monotonic())
        try:
            with metrics.POOL_WAITING.track_inprogress():
                async with asyncio.timeout(patience_seconds):
                    await self._free_connections.acquire()
        except TimeoutError:
            metrics.POOL_TIMEOUTS.inc()
            # Of a COMMIT that may have happened, «nothing was changed» may not be said.
            is_uncertain = earlier is not None and earlier.uncertain_result is not None
            raise (DatabaseUnavailable if is_uncertain else Overloaded) from None
        try:
            with metrics.THREADS_IN_USE.track_inprogress():
                return await to_thread.run_sync(
                    lambda: self.transact(work, *args, read_only=read_only, earlier=earlier),
                    limiter=self._threads,
                )
        finally:
            self._free_connections.release()

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
        options: dict[str, Any] = {"read_only": read_only}
        if earlier is not None:
            record.began_at = earlier.began_at
            if earlier.uncertain_result is not None:
                options["uncertain_result"] = earlier.uncertain_result
                record.uncertain_commits = 1
        with self._recorded(record):
            if earlier is not None and earlier.failure is not None:
                self._give_up_if_late(record, earlier.failure)
            return self._run_until_final(record, options, work, *args)

    def _end_of(self, began_at: float) -> float:
        return began_at + self._settings.lock_budget_seconds

    def _give_up_if_late(self, record: recording.Transaction, failure: Failure) -> None:
        """Raise the answer of an earlier failure where the lock budget has no time for one run more."""
        if time.monotonic() + SHORTEST_RUN_SECONDS > self._end_of(record.began_at):
            metrics.RETRIES_USED_UP.inc()
            log.error("Gave up after a run for several calls", extra=record.facts())
            raise failure.answer
        metrics.RETRIES.inc()

    @contextmanager
    def _recorded(self, record: recording.Transaction) -> Iterator[None]:
        try:
            with tracing.transaction_span(record), recording.transaction(record):
                yield
        finally:
            is_told = record.outcome == "given_up" or duties.is_known_to_fail()  # with its seconds
            if record.seconds >= self._settings.slow_transaction_seconds and not is_told:
                log.warning("Slow transaction", extra=record.facts())

    def attempt(self, work: Work[R], *args: Any) -> R:
        """Run `work(tx, *args)` once in one transaction, commit, and return its result.

        For work that many calls wait for: no lock wait of it lasts longer than a second. Raises what work
        raises, or RunFailed, after which `transact` may go on for each of them.
        """
        record = recording.Transaction(getattr(work, "__name__", "work"))
        with self._recorded(record):
            ends_at = record.began_at + SHORTEST_RUN_SECONDS
            try:
                return self._run_once(self._engine_of_groups, ends_at, {}, work, *args)
            except (CommitUncertain, DBAPIError, NoFreeConnection, dialects.SessionRefused) as error:
                record.outcome = "run_again"
                failed = _failed_attempt(error, record)
                log.warning(
                    "A run for several calls failed, each runs again alone: %s",
                    error.orig if isinstance(error, DBAPIError) else error,
                    extra=record.facts(),
                )
                raise failed from error

    def _run_until_final(
        self, record: recording.Transaction, options: dict[str, Any], work: Work[R], *args: Any
    ) -> R:
        ends_at = self._end_of(record.began_at)
        preliminaries = 0
        failed: Failure | None = None
        while True:
            try:
                with metrics.POOL_IN_USE.track_inprogress():
                    result = self._run_once(self._engine, ends_at, options, work, *args)
            except RunFirst as first:
                preliminaries += 1
                if preliminaries > MOST_PRELIMINARIES:
                    raise DatabaseUnavailable from first
                self.transact(first.work, *first.args_of_work)
            except CommitUncertain as uncertain:
                options["uncertain_result"] = uncertain.result
                record.uncertain_commits += 1
                at_commit = failure_of(uncertain.cause) or GONE
                self._pause_or_give_up(record, ends_at, at_commit, uncertain.cause, failed)
                failed = at_commit
            except DBAPIError as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                if "uncertain_result" in options:  # «nothing was changed» may no longer be said
                    failure = replace(failure, answer=DatabaseUnavailable)
                self._pause_or_give_up(record, ends_at, failure, error, failed)
                failed = failure
            except NoFreeConnection as timeout:
                metrics.POOL_TIMEOUTS.inc()
                raise Overloaded from timeout
            except dialects.SessionRefused as refused:
                record.run_failed(UNFIT.kind)
                if not duties.tells_of(UNFIT.answer):
                    log.error("%s", refused)  # noqa: TRY400 - its text is the whole story
                raise DatabaseUnavailable from refused
            else:
                _tell_if_it_is_back(record, failed)
                return result

    def _run_once(
        self, engine: Engine, ends_at: float, options: dict[str, Any], work: Work[R], *args: Any
    ) -> R:
        with (
            engine.connect().execution_options(**options) as tx,
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


def _failed_attempt(error: Exception, record: recording.Transaction) -> RunFailed:
    result = None
    cause = error
    if isinstance(error, CommitUncertain):
        result, cause = error.result, error.cause
    if not isinstance(cause, DBAPIError):
        return RunFailed(UNFIT)
    failure = failure_of(cause)
    record.run_failed(failure.kind if failure else "other", number_of(cause))
    if isinstance(error, CommitUncertain):  # «nothing was changed» may not be said
        failure = replace(failure or GONE, answer=DatabaseUnavailable)
    return RunFailed(failure, result)


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
