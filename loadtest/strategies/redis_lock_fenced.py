"""The Redis lock with a number that rises with each holder and that the database checks inside the write.

A holder that slept past its lease brings an old number, and the UPDATE finds no row to change: it loses,
whatever it believes. But the row that the UPDATE changes is a row lock, held to the commit: with it, Redis
is no longer needed.
"""

from dataclasses import replace

from loadtest.strategies import Caller, Devices, LockLost, Need, Outcome, Phase, Point, Strategy
from loadtest.strategies.redis_lease import Lease, lease_key

DEVICES = Devices("fenced_devices")
FENCES = (
    "CREATE TABLE fenced_fences (user_id BIGINT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB"
)
RAISE_FENCE_IF_LOWER = "UPDATE fenced_fences SET fence = %s WHERE user_id = %s AND fence < %s"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    key = lease_key(DEVICES.table, user_id)
    lease = Lease.take(caller.redis, key, caller.patience_seconds)
    try:
        fence = int(lease.redis.incr(f"{key}:fence"))
        caller.pause(Point.LOCKED, user_id)
        caller.execute("INSERT IGNORE INTO fenced_fences (user_id) VALUES (%s)", user_id)
        caller.commit()
        # Before the count: checked behind it, the number would let a holder insert upon an old count.
        if not caller.execute(RAISE_FENCE_IF_LOWER, fence, user_id, fence):
            raise LockLost(f"number {fence} is older than one that has written")
        outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
        caller.commit()
    finally:
        lease.release()
    return outcome


STRATEGY = Strategy(
    name="redis_lock_fenced",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(FENCES,),
    seed={Phase.KNOWN: "INSERT INTO fenced_fences (user_id) VALUES (%s)"},
    needs=Need.REDIS,
)
PAUSED = replace(
    STRATEGY,
    name="redis_lock_fenced_paused",
    doc="""The fenced Redis lock with the same pause: holders sleep past their leases with the lock in hand.

    Whoever has the highest number writes. The others bring lower ones, are told that their lock is lost, and
    start again from the lock.
    """,
    pause_at=Point.LOCKED,
)
