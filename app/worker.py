"""Does what nobody waits for: sends deliveries, and removes what has run out. Several may run at once."""

import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import to_thread

from app import __version__, metrics
from app.audit.watch import watch_until
from app.db import Database
from app.devices.changes import expire_some
from app.devices.queries import users_with_expired_devices
from app.duties import Duty
from app.errors import Contention
from app.idempotency.queries import forget_old_answers
from app.origin import Origin
from app.settings import Settings
from app.webhooks.changes import discard_what_was_left, forget_ended
from app.webhooks.stragglers import Place, promote_stragglers
from app.webhooks.worker import Courier, fan_out_until

log = logging.getLogger(__name__)

ACTOR = "worker"
MOST_AT_ONCE = 500
DUTIES = 4

Note = Callable[[], None]


def _note_nothing() -> None:
    """Where nobody asks whether the worker gets on."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass removed."""

    devices: int = 0
    answers: int = 0
    deliveries: int = 0

    @property
    def is_full(self) -> bool:
        """There may be more to remove at once."""
        return max(self.devices, self.answers, self.deliveries) >= MOST_AT_ONCE


def run_once(db: Database, settings: Settings, note_progress: Note = _note_nothing) -> Swept:
    """One pass: the devices of up to 500 leases that ran out first, and up to 500 old answers and deliveries.

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
    return Swept(devices, answers, deliveries=max(discard_what_was_left(db), forget_ended(db)))


def _expire(db: Database, origin: Origin, user_id: int) -> int:
    """Devices removed of one user; none if its lock is held too long, which must not hold up the others."""
    try:
        return db.of_user(user_id).transact(expire_some, origin, user_id)
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
    place = Place()
    duty = Duty(log, "Sweeping", "This pass is left out")
    while not stop.is_set():
        swept = Swept()
        note_progress()
        with duty.one_pass(), metrics.SWEEP_SECONDS.time():
            swept = run_once(db, settings, note_progress)
            place = promote_stragglers(db, place)
        metrics.SWEEPS.labels("failed" if duty.is_failing else "done").inc()
        if not duty.is_failing:
            metrics.LAST_SWEEP.set(time.time())
        metrics.SWEPT.labels("devices").inc(swept.devices)
        metrics.SWEPT.labels("answers").inc(swept.answers)
        metrics.SWEPT.labels("deliveries").inc(swept.deliveries)
        if swept != Swept():
            log.info(
                "Removed %d devices past their lease, %d old answers, %d deliveries",
                swept.devices,
                swept.answers,
                swept.deliveries,
            )
        if not swept.is_full:
            stop.wait(duty.pause_seconds(settings.sweep_interval_seconds))


def work_until(stop: threading.Event, settings: Settings, note_progress: Note = _note_nothing) -> None:
    """Sweep, audit, fan out and deliver until `stop` is set; deliveries under way are finished, 15 s at most.

    A fault in one of the four ends them all, and is raised: whoever started this starts it again.
    """
    log.info(
        "The worker of Cupo %s begins: up to %d deliveries at once, a sweep every %g s, %s",
        __version__,
        settings.worker_concurrency,
        settings.sweep_interval_seconds,
        _audits(settings),
    )
    db = Database(settings)
    courier = Courier(db, settings)
    with ThreadPoolExecutor(DUTIES, thread_name_prefix="worker") as threads:
        duties = [
            threads.submit(run_until, stop, db, settings, note_progress),
            threads.submit(watch_until, stop, db, settings),
            threads.submit(fan_out_until, stop, db, courier),
            threads.submit(courier.run_until, stop),
        ]
        for _ended in as_completed(duties):
            stop.set()
    db.close()
    log.info("The worker has ended")
    for duty in duties:
        duty.result()


def _audits(settings: Settings) -> str:
    if settings.audit_interval_seconds:
        return f"an audit of the limits every {settings.audit_interval_seconds:g} s"
    return "no audit of the limits"


@asynccontextmanager
async def embedded(settings: Settings) -> AsyncIterator[None]:
    """A worker beside the service, in its process, where the settings ask for one.

    Each of several processes may have one: they find their work as workers on several machines do.
    """
    if not settings.has_embedded_worker:
        yield
        return
    stop = threading.Event()
    # A pool of its own, one connection for each of the duties: calls must not wait for deliveries.
    own = settings.model_copy(update={"database_pool_size": DUTIES})
    thread = threading.Thread(target=work_until, args=(stop, own), name="worker")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        await to_thread.run_sync(thread.join)
