"""A lock in Redis around count and insert: owner's token, renewal and release that check the owner.

It holds while every holder is done before its lease ends. A holder that is paused for longer (a collection,
a stopped machine, a slow disk) wakes up, still believes that it holds the lock, and writes beside the next
holder.
"""

from dataclasses import replace

from loadtest.strategies import BREAKS_FOR_ALL, Caller, Devices, Need, Outcome, Point, Strategy
from loadtest.strategies.redis_lease import Lease, lease_key

DEVICES = Devices("redis_lock_devices")


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    lease = Lease.take(caller.redis, lease_key(DEVICES.table, user_id), caller.patience_seconds)
    try:
        caller.pause(Point.LOCKED, user_id)
        outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit, last_check=lease.renew)
        caller.commit()
    finally:
        lease.release()
    return outcome


STRATEGY = Strategy(
    name="redis_lock",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    needs=Need.REDIS,
)
PAUSED = replace(
    STRATEGY,
    name="redis_lock_paused",
    doc="""The Redis lock with a pause injected: the first holders of each user sleep past their leases.

    Each had renewed its lease just before and was its owner then. What the lock service knew at that moment
    says nothing about the moment of the write.
    """,
    breaks=BREAKS_FOR_ALL,
    pause_at=Point.COUNTED,
)
