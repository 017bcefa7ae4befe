"""What a worker does again and again, also while the database is away: then quietly, and less often."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlalchemy.exc import DBAPIError

from app.errors import Contention, Unavailable
from app.failures import Failure, number_of

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0


class Duty:
    """One line when it first fails, one when it goes on again, none between; `pause_seconds` grows meanwhile.

    For one thread. `survived` are the errors that cost a pass and not the duty.
    """

    def __init__(
        self,
        log: logging.Logger,
        name: str,
        if_it_fails: str,
        survived: tuple[type[Exception], ...] = (Unavailable,),
    ) -> None:
        self._log = log
        self._name = name
        self._if_it_fails = if_it_fails
        self._survived = survived
        self._failures = 0
        self._failed_at = 0.0

    @property
    def is_failing(self) -> bool:
        return self._failures > 0

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Ends the errors that it survives."""
        token = _current.set(self)
        try:
            yield
        except self._survived as error:
            self._has_failed(error)
        else:
            self._goes_on()
        finally:
            _current.reset(token)

    def pause_seconds(self, usual: float) -> float:
        """Until the next pass: the usual time, or more after passes that failed in a row."""
        if not self.is_failing:
            return usual
        longer = FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10)
        return max(usual, min(LONGEST_PAUSE_SECONDS, longer))

    def _has_failed(self, error: Exception) -> None:
        if not self.is_failing:
            self._failed_at = time.monotonic()
            level = logging.WARNING if isinstance(error, Contention) else logging.ERROR
            self._log.log(
                level, "%s: %s", self._if_it_fails, reason_of(error), extra={"errno": _number_of(error)}
            )
        self._failures += 1

    def _goes_on(self) -> None:
        if self.is_failing:
            seconds = time.monotonic() - self._failed_at
            self._log.warning(
                "%s again, after %d failed in a row in %.1f s", self._name, self._failures, seconds
            )
        self._failures = 0


_current: ContextVar[Duty | None] = ContextVar("duty", default=None)


def tells_of(answer: type[Unavailable]) -> bool:
    """Whether a duty runs here that tells itself of a transaction which ends so.

    Of locks it does not: each is another story, and the duty may go on without the one user that had it.
    """
    return _current.get() is not None and answer is not Contention


def is_news(failure: Failure, before: Failure | None) -> bool:
    """Whether a run that failed is told to whoever does not ask for all, after one that failed by `before`.

    Each conflict has a rival of its own; a database that is away fails each run until it is back.
    """
    if failure.is_counted:
        return True
    return (before is None or before.is_counted) and not tells_of(failure.answer)


def is_known_to_fail() -> bool:
    """Whether a duty runs here that has told of its failure, and will tell of its end."""
    duty = _current.get()
    return duty is not None and duty.is_failing


def reason_of(error: Exception) -> str:
    """For the log: what the database said, not the sentence for callers."""
    cause = error.__cause__ if isinstance(error, Unavailable) else error
    said = cause.orig if isinstance(cause, DBAPIError) else cause
    if not isinstance(error, Unavailable):
        return str(said)
    return error.title if said is None else f"{error.title}: {said}"


def _number_of(error: Exception) -> int | None:
    cause = error.__cause__ if isinstance(error, Unavailable) else error
    return number_of(cause) if isinstance(cause, DBAPIError) else None
