"""What becomes known of a call while it is served: its log line, its series and its span tell the same.

A call's transactions run in threads, which get a copy of the context, and so the same record.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from app import metrics
from app.errors import AppError, Unavailable

UNKNOWN_ROUTE = "unknown"

Outcome = Literal["committed", "rolled_back", "given_up", "failed", "run_again"]


@dataclass(slots=True)
class Call:
    """One request. `attempts` are the runs of its transactions, `errno` is the last that failed one."""

    request_id: str
    attempts: int = 0
    lock_wait_seconds: float = 0.0
    errno: int | None = None
    registration: metrics.RegistrationOutcome | None = None


@dataclass(slots=True)
class Transaction:
    """One `Database.transact`, with all its runs."""

    name: str
    began_at: float = field(default_factory=time.monotonic)
    outcome: Outcome = "failed"
    retries: int = 0
    uncertain_commits: int = 0
    errno: int | None = None
    lock_wait_seconds: float = 0.0
    locked_at: float | None = None

    @property
    def attempts(self) -> int:
        return self.retries + 1

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_at

    def run_failed(self, kind: str, errno: int | None = None) -> None:
        metrics.DATABASE_ERRORS.labels(kind).inc()
        self.errno = errno or self.errno

    def facts(self) -> dict[str, Any]:
        """For a log line."""
        return {
            "transaction": self.name,
            "seconds": round(self.seconds, 6),
            "lock_wait_seconds": round(self.lock_wait_seconds, 6),
            "attempts": self.attempts,
            "errno": self.errno,
        }


_calls: ContextVar[tuple[Call, ...]] = ContextVar("calls", default=())
_transaction: ContextVar[Transaction | None] = ContextVar("transaction", default=None)


def current_calls() -> tuple[Call, ...]:
    """Whom the work at hand is done for: one call, several in one transaction, or none, as in the worker."""
    return _calls.get()


@contextmanager
def on_behalf_of(*calls: Call) -> Iterator[None]:
    """What transactions record inside the block is told of each of these calls."""
    token = _calls.set(calls)
    try:
        yield
    finally:
        _calls.reset(token)


@contextmanager
def transaction(record: Transaction) -> Iterator[None]:
    """Count the transaction once its outcome is final, and tell of it to the calls that it was for.

    One inside another makes a lock row: it is counted, and belongs to no attempt of a call.
    """
    outer = _transaction.get()
    token = _transaction.set(record)
    try:
        yield
        record.outcome = "committed"
    except AppError as refusal:
        record.outcome = "given_up" if isinstance(refusal, Unavailable) else "rolled_back"
        raise
    finally:
        _transaction.reset(token)
        _count(record)
        for call in current_calls() if outer is None else ():
            call.attempts += record.attempts
            call.lock_wait_seconds += record.lock_wait_seconds
            call.errno = record.errno or call.errno


def _count(done: Transaction) -> None:
    if done.outcome == "run_again":
        return  # by transactions of their own, which are counted
    metrics.TRANSACTIONS.labels(done.outcome).inc()
    if done.uncertain_commits:
        resolved = done.outcome in {"committed", "rolled_back"}
        metrics.UNKNOWN_COMMITS.labels("resolved" if resolved else "unresolved").inc(done.uncertain_commits)


class Run:
    """Record one run, from BEGIN to the end of its COMMIT or ROLLBACK, with which a lock ends."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        current = _transaction.get()
        if current is not None and current.locked_at is not None:
            metrics.CRITICAL_SECTION_SECONDS.observe(time.monotonic() - current.locked_at)
            current.locked_at = None


class LockWait:
    """Record how long the statement inside took; the lock counts as held from its end if it `got_it`."""

    __slots__ = ("_asked_at", "got_it")

    def __enter__(self) -> Self:
        self.got_it = False
        self._asked_at = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        metrics.LOCK_WAIT_SECONDS.observe(now - self._asked_at)
        current = _transaction.get()
        if current is not None:
            current.lock_wait_seconds += now - self._asked_at
            if self.got_it and current.locked_at is None:
                current.locked_at = now


def registered(outcome: metrics.RegistrationOutcome) -> None:
    """Note what a registration became; it counts once its transaction has committed."""
    for call in current_calls():
        call.registration = outcome
