"""What becomes of a transaction after a run that failed: another run, after a pause, or the answer."""

import logging
import random
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError

from app import duties, metrics, recording
from app.failures import GONE, UNFIT, Failure, failure_of, number_of
from app.sessions import SessionRefused

log = logging.getLogger("app.db")  # one with what the transactions tell themselves

RETRIES = 5
RETRIES_WITH_SEVERAL_WRITERS = 12  # certification conflicts come in rows when many nodes write one user
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.32
SHORTEST_RUN_SECONDS = 1  # InnoDB counts lock waits in whole seconds, so a run may take this long


class CommitUncertain(Exception):
    """COMMIT failed, so the transaction was committed or not. `result` is what it would have given."""

    def __init__(self, result: Any, cause: DBAPIError) -> None:
        super().__init__(f"at COMMIT: {cause.orig}")
        self.result = result
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Earlier:
    """What `Database.attempt` left of a call. `began_at` is when its time began, by the monotonic clock.

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


def pause_or_give_up(
    record: recording.Transaction,
    most_retries: int,
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
    too_often = failure.is_counted and record.retries >= most_retries
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


def go_on_or_give_up(record: recording.Transaction, failure: Failure, ends_at: float) -> None:
    """Raise the answer of what failed a group's run, where there is no time for a run of the call alone."""
    if time.monotonic() + SHORTEST_RUN_SECONDS > ends_at:
        metrics.RETRIES_USED_UP.inc()
        log.error("Gave up after a run for several calls", extra=record.facts())
        raise failure.answer
    metrics.RETRIES.inc()


def tell_of_attempt(record: recording.Transaction, error: Exception) -> RunFailed:
    """What `Database.attempt` raises after this error."""
    cause = error.cause if isinstance(error, CommitUncertain) else error
    failure: Failure | None = UNFIT
    if isinstance(cause, DBAPIError):
        failure = failure_of(cause)
        record.run_failed(failure.kind if failure else "other", number_of(cause))
    record.outcome = "run_again"
    log.warning(
        "A run for several calls failed, each runs again alone: %s",
        cause.orig if isinstance(cause, DBAPIError) else cause,
        extra=record.facts(),
    )
    if isinstance(error, CommitUncertain):
        return RunFailed(failure or GONE, error.result)
    return RunFailed(failure)


def tell_of_refusal(record: recording.Transaction, refused: SessionRefused) -> None:
    record.run_failed(UNFIT.kind)
    if not duties.tells_of(UNFIT.answer):
        log.error("%s", refused)


def tell_if_it_is_back(record: recording.Transaction, failed: Failure | None) -> None:
    if failed is not None and not failed.is_counted and not duties.is_known_to_fail():
        log.info("Run %d went through, the database is back", record.attempts, extra=record.facts())
