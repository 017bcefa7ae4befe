"""The part of the audit that `cupo worker` repeats: how many users are above their limit, as metrics."""

import logging
import threading
import time
from collections import Counter

from app import metrics
from app.audit.findings import AboveLimit
from app.audit.run import pages
from app.audit.service import look_at_limits
from app.audit.trail import FAILURES, Cause
from app.db import Database
from app.duties import Duty
from app.settings import Settings

log = logging.getLogger(__name__)

SECONDS_AFTER_A_FAILURE = 60


def count_above_limit(stop: threading.Event, db: Database, settings: Settings) -> Counter[Cause] | None:
    """Users above their limit; None where `stop` was set before the end. Raises Unavailable (503)."""
    found: Counter[Cause] = Counter()
    for page in pages(db, settings, look_at_limits):
        found.update(one.cause for one in page.found if isinstance(one, AboveLimit))
        if stop.is_set():
            return None
    return found


def watch_until(stop: threading.Event, db: Database, settings: Settings) -> None:
    """Count at once and then at each interval, until `stop` is set, which ends a count after its page.

    A database that is gone costs a count, and the next one comes sooner.
    """
    duty = Duty(log, "The limits are audited", "The limits could not be audited")
    while settings.audit_interval_seconds and not stop.is_set():
        pause_seconds = settings.audit_interval_seconds
        found = None
        with duty.one_pass():
            found = count_above_limit(stop, db, settings)
        if duty.is_failing:
            pause_seconds = min(pause_seconds, SECONDS_AFTER_A_FAILURE)
        elif found is not None:
            _report(found)
        stop.wait(pause_seconds)


def _report(found: Counter[Cause]) -> None:
    for cause in Cause:
        metrics.AUDIT_USERS_ABOVE_LIMIT.labels(cause.value).set(found[cause])
    metrics.LAST_AUDIT.set(time.time())
    failures = sum(found[cause] for cause in FAILURES)
    if failures:
        log.error("%d users are above their limit and should not be; cupo audit names them", failures)
