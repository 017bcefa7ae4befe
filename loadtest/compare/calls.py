"""One call as a client makes it: the strategy, run again from the start after contention or a lost lease."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pymysql
from pymysql.constants import ER

from loadtest.strategies import Caller, LockBusy, LockLost, Outcome, Point, Strategy
from loadtest.strategies.redis_lease import KEYS, lease_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

TRIES = 16
FIRST_PAUSE_SECONDS = 0.010
LONGEST_PAUSE_SECONDS = 0.320
HELD_UP_SECONDS = 5

DEADLOCK = ER.LOCK_DEADLOCK
LOCK_WAIT = ER.LOCK_WAIT_TIMEOUT
CHANGED_SINCE_READ = 1020  # MariaDB with innodb_snapshot_isolation
CONTENTION = (DEADLOCK, LOCK_WAIT, CHANGED_SINCE_READ)


@dataclass(frozen=True)
class Sample:
    """One call: instants of the machine's monotonic clock, the answer, and what it took to get there."""

    user_id: int
    device_id: str
    sent_at: float
    finished_at: float
    outcome: Outcome
    retries: int = 0
    deadlocks: int = 0
    lock_waits: int = 0


def call(strategy: Strategy, caller: Caller, user_id: int, device_id: str, limit: int) -> Sample:
    """Any error but contention goes up: the server is gone, or the lab is wrong."""
    sent_at = time.monotonic()
    seen: Counter[int] = Counter()
    outcome = Outcome.GAVE_UP
    for attempt in range(TRIES):
        try:
            outcome = strategy.register(caller, user_id, device_id, limit)
            break
        except LockBusy:
            break
        except LockLost:
            seen[0] += 1
        except pymysql.err.OperationalError as error:
            if error.args[0] not in CONTENTION:
                raise
            seen[error.args[0]] += 1
        caller.rollback()  # 1205 undoes its statement only
        if attempt + 1 < TRIES:
            time.sleep(_pause_seconds(attempt))
    return Sample(
        user_id=user_id,
        device_id=device_id,
        sent_at=sent_at,
        finished_at=time.monotonic(),
        outcome=outcome,
        retries=min(seen.total(), TRIES - 1),
        deadlocks=seen[DEADLOCK],
        lock_waits=seen[LOCK_WAIT],
    )


def _pause_seconds(attempt: int) -> float:
    """Full jitter, so that those who collided do not meet again."""
    longest = min(FIRST_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS)
    return random.uniform(0, longest)  # noqa: S311  # spreads callers, guards nothing


def pause_past_lease(redis: Redis, strategy: Strategy, limit: int) -> Callable[[Point, int], None]:
    """Holds up the first holders of each user until one more of them than the limit are at the pause.

    A holder's lease is ended while it is held up: what a pause longer than the lease does, without the
    waiting.
    """

    def pause(point: Point, user_id: int) -> None:
        if point is not strategy.pause_at:
            return
        rendezvous = f"{KEYS}{strategy.name}:{user_id}"
        held_up = int(redis.incr(f"{rendezvous}:held_up"))
        if held_up > limit + 1:
            return
        redis.pexpire(lease_key(strategy.devices.table, user_id), 0)
        if held_up == limit + 1:
            redis.rpush(f"{rendezvous}:go", *range(limit))
        else:
            redis.blpop([f"{rendezvous}:go"], timeout=HELD_UP_SECONDS)

    return pause
