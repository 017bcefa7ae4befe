"""Claims, sends and settles, several deliveries at once. Any number of workers may run, on any machine."""

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from sqlalchemy.exc import DBAPIError

from app import metrics, tracing
from app.db import Database
from app.duties import Duty, reason_of
from app.errors import Unavailable
from app.settings import Settings
from app.webhooks import claim, outbox_queries
from app.webhooks.claim import MARGIN_SECONDS, Settlement, settlement
from app.webhooks.connections import Connections
from app.webhooks.deliver import ATTEMPT_SECONDS, deliver
from app.webhooks.deliveries import Delivery
from app.webhooks.fan_out import fan_out

log = logging.getLogger(__name__)

# How often an idle worker looks; an event is on its way after two looks at the latest.
POLL_SECONDS = 0.25
# What is answered within this time is settled together: a commit costs more than a delivery.
LINGER_SECONDS = 0.005
RESCUE_SECONDS = 1.0
# An attempt that takes longer no longer counts against the concurrency: receivers that hang would else hold
# up all others. How many there can be is bounded by the endpoints' caps, and by 8 times the concurrency.
QUICK_SECONDS = 0.5
MOST_UNDER_WAY = 8
OLDEST_TOLD_SECONDS = 5.0
SURVIVED = (Unavailable, DBAPIError)
# What an attempt came to, as the metrics call it, by the state that its delivery is in then.
OUTCOMES = {"delivered": "succeeded", "retrying": "failed", "discarded": "given_up"}


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did. `settled` counts the states that deliveries came to, `refused` lost claims."""

    claimed: int = 0
    rescued: int = 0
    refused: int = 0
    settled: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Sending:
    delivery: Delivery
    began_at: float


class Courier:
    """One process's part in the deliveries. Only the thread that runs it talks to the database."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._concurrency = settings.worker_concurrency
        self._most_in_flight = settings.max_in_flight_per_endpoint
        self._connections = Connections(
            allow_http=settings.webhooks_allow_http, allow_private=settings.webhooks_allow_private
        )
        self._threads = ThreadPoolExecutor(self._concurrency * MOST_UNDER_WAY, thread_name_prefix="delivery")
        self._sending: dict[Future[Settlement | None], _Sending] = {}
        self._done: SimpleQueue[Future[Settlement | None]] = SimpleQueue()
        self._to_settle: list[Settlement] = []
        self._to_give_back: list[Delivery] = []
        self._news = threading.Event()
        self._rescue_at = 0.0
        self._duty = Duty(log, "Deliveries go on", "Deliveries are left for later", SURVIVED)

    def wake(self) -> None:
        """There may be something to claim. Safe to call from any thread."""
        self._news.set()

    def run_until(self, stop: threading.Event) -> None:
        """Pass after pass until `stop` is set; then finish what is under way, which takes 15 s at the most.

        A database that is gone costs passes, not the worker.
        """
        while not stop.is_set():
            passed = self._pass_if_possible()
            if self._duty.is_failing:  # what receivers have answered meanwhile is no reason to hurry
                stop.wait(self._duty.pause_seconds(POLL_SECONDS))
            elif not passed.claimed:
                self._news.wait(POLL_SECONDS)
            stop.wait(LINGER_SECONDS)
            self._news.clear()
        self._finish()

    def run_once(self) -> Pass:
        """Settle what has been answered, then claim as much as there is room for, and begin to send it.

        Raises Unavailable (503); nothing is lost by it.
        """
        settled, refused = self._settle()
        rescued = 0
        if time.monotonic() >= self._rescue_at:
            rescued = claim.rescue(self._db)
            self._rescue_at = time.monotonic() + RESCUE_SECONDS
        return Pass(self._claim(), rescued, refused, settled)

    def _pass_if_possible(self) -> Pass:
        passed = Pass()
        with self._duty.one_pass():
            passed = self.run_once()
        if passed.rescued or passed.refused:
            log.warning("Rescued %d deliveries; %d were rescued from us", passed.rescued, passed.refused)
        return passed

    def _claim(self) -> int:
        now = time.monotonic()
        quick = sum(now - one.began_at < QUICK_SECONDS for one in self._sending.values())
        most = self._concurrency * MOST_UNDER_WAY - len(self._sending)
        free = min(self._concurrency - quick, most)
        if free <= 0:
            return 0
        claimed = claim.claim(self._db, str(uuid.uuid4()), free, self._most_in_flight)
        for delivery in claimed:
            future = self._threads.submit(self._send, delivery, now)
            self._sending[future] = _Sending(delivery, time.monotonic())
            future.add_done_callback(self._note)
        return len(claimed)

    def _send(self, delivery: Delivery, claimed_after: float) -> Settlement | None:
        """Make the attempt; None if it is too late to begin it, since the lease might end before it does."""
        if time.monotonic() - claimed_after > MARGIN_SECONDS / 2:
            return None
        with tracing.delivery_span(delivery.type) as span:
            attempt = deliver(self._connections, delivery, tracing.outgoing_headers())
            span.tell({"status": attempt.status, "outcome": attempt.outcome})
        return settlement(delivery, attempt)

    def _note(self, future: Future[Settlement | None]) -> None:
        self._done.put(future)
        self._news.set()

    def _settle(self) -> tuple[Counter[str], int]:
        """Write what has been answered. It stays to be written until that has succeeded."""
        self._collect()
        if self._to_give_back:
            self._db.transact(claim.give_back, self._to_give_back)
            self._to_give_back = []
        if not self._to_settle:
            return Counter(), 0
        refused = self._db.transact(claim.settle, self._to_settle)
        ours = [one for one in self._to_settle if one.delivery.id not in refused]
        self._to_settle = []
        for one in ours:
            _count(one)
        return Counter(one.settled.state for one in ours), len(refused)

    def _collect(self) -> None:
        for future in _taken_from(self._done):
            delivery = self._sending.pop(future).delivery
            if future.cancelled():
                self._to_give_back.append(delivery)
            elif error := future.exception():
                # Its lease will end, and it counts as an attempt: what always fails so ends as discarded.
                log.error("Delivery %d failed by a fault of the worker", delivery.id, exc_info=error)
            elif result := future.result():
                self._to_settle.append(result)
            else:
                self._to_give_back.append(delivery)

    def _finish(self) -> None:
        """Give back what was not begun, and settle what was."""
        begun = [future for future in self._sending if not future.cancel()]
        wait(begun, timeout=ATTEMPT_SECONDS + 1)
        try:
            self._settle()
        except SURVIVED as error:
            log.warning("%d deliveries are left to their leases: %s", len(self._to_settle), reason_of(error))
        self._threads.shutdown(wait=False)
        self._connections.close()


def _count(one: Settlement) -> None:
    metrics.WEBHOOK_DELIVERIES.labels(OUTCOMES[one.settled.state]).inc()
    duration_seconds = one.duration_ms / 1000
    metrics.WEBHOOK_ATTEMPT_SECONDS.observe(duration_seconds)
    if one.settled.state == "delivered" and one.delivery.event is not None:
        metrics.OUTBOX_LAG_SECONDS.observe(one.delivery.age_seconds + duration_seconds)


def _taken_from(
    done: SimpleQueue[Future[Settlement | None]],
) -> Sequence[Future[Settlement | None]]:
    taken = []
    while True:
        try:
            taken.append(done.get_nowait())
        except Empty:
            return taken


def fan_out_until(stop: threading.Event, db: Database, courier: Courier) -> None:
    """Make deliveries of what comes into the outbox, and wake the courier for them, until `stop` is set.

    Tells every 5 seconds for how long the oldest event has waited.
    """
    tell_at = 0.0
    duty = Duty(log, "The outbox is worked off", "The outbox is left for later", SURVIVED)
    while not stop.is_set():
        fanned_out = 0
        with duty.one_pass():
            if time.monotonic() >= tell_at:
                waited_seconds = db.transact(outbox_queries.oldest_undelivered_seconds, read_only=True)
                metrics.OUTBOX_OLDEST_SECONDS.set(waited_seconds)
                tell_at = time.monotonic() + OLDEST_TOLD_SECONDS
            if db.transact(outbox_queries.ids_in_outbox, 1, read_only=True):
                fanned_out = db.transact(fan_out)
        if fanned_out:
            courier.wake()
        else:
            stop.wait(duty.pause_seconds(POLL_SECONDS))
