"""Removes what has run out: devices past their lease, answers past their time. Several may run at once."""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from app import metrics
from app.db import Database
from app.devices.changes import expire_some
from app.devices.queries import users_with_expired_devices
from app.errors import Contention, Unavailable
from app.idempotency.queries import forget_old_answers
from app.origin import Origin
from app.settings import Settings

log = logging.getLogger(__name__)

ACTOR = "worker"
MOST_AT_ONCE = 500

Note = Callable[[], None]


def _note_nothing() -> None:
    """Where nobody asks whether the worker gets on."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass removed."""

    devices: int = 0
    answers: int = 0

    @property
    def is_full(self) -> bool:
        """There may be more to remove at once."""
        return self.devices >= MOST_AT_ONCE or self.answers >= MOST_AT_ONCE


def run_once(db: Database, settings: Settings, note_progress: Note = _note_nothing) -> Swept:
    """One pass: the devices of up to 500 leases that ran out first, and up to 500 old answers.

    Each user's devices go in a transaction of their own, under the user's lock, which looks at the lease once
    more: a heartbeat that came first has won. Stopped in the middle, the next pass does the rest; two workers
    on the same user come one after the other, and the second finds nothing. Raises Unavailable (503).
    """
    origin = Origin(ACTOR, str(uuid.uuid4()))
    users = db.transact(users_with_expired_devices, MOST_AT_ONCE)
    devices = 0
    for user in users:
        devices += _expire(db, origin, user)
        note_progress()
    answers = db.transact(forget_old_answers, settings.idempotency_hours * 3600, MOST_AT_ONCE)
    return Swept(devices, answers)


def _expire(db: Database, origin: Origin, user_id: int) -> int:
    """Devices removed of one user; none if its lock is held too long, which must not hold up the others."""
    try:
        return db.transact(expire_some, origin, user_id)
    except Contention:
        metrics.SWEEP_USERS_LEFT_OUT.inc()
        log.warning("User %d is left out of this pass: its lock is held elsewhere", user_id)
        return 0


def run_until(
    stop: threading.Event, db: Database, settings: Settings, note_progress: Note = _note_nothing
) -> None:
    """Pass after pass until `stop` is set, which ends the wait between two and finishes the one that runs.

    A database that is gone costs passes, not the worker.
    """
    while not stop.is_set():
        swept = Swept()
        note_progress()
        try:
            with metrics.SWEEP_SECONDS.time():
                swept = run_once(db, settings, note_progress)
        except Unavailable as unavailable:
            metrics.SWEEPS.labels("failed").inc()
            log.warning("This pass is left out: %s", unavailable)
        else:
            metrics.SWEEPS.labels("done").inc()
            metrics.LAST_SWEEP.set(time.time())
        metrics.SWEPT.labels("devices").inc(swept.devices)
        metrics.SWEPT.labels("answers").inc(swept.answers)
        if swept != Swept():
            log.info("Removed %d devices past their lease, %d old answers", swept.devices, swept.answers)
        if not swept.is_full:
            stop.wait(settings.sweep_interval_seconds)
