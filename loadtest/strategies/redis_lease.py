"""A lease in Redis: `SET NX PX` with an owner's token, renewed and released only by whoever owns it.

The token tells owners apart. Both scripts compare and act in one step, because between a GET and a DEL of
one's own the lease can end and another caller take it.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadtest.strategies import LockBusy, LockLost

if TYPE_CHECKING:
    from redis import Redis

LEASE_MILLISECONDS = 10_000
POLL_SECONDS = (0.001, 0.010)  # generous: the lock of redis-py asks every 100 ms
KEYS = "cupo_lab:"

IF_OWNER = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
RELEASE_IF_OWNER = IF_OWNER + "return redis.call('DEL', KEYS[1])"
RENEW_IF_OWNER = IF_OWNER + "return redis.call('PEXPIRE', KEYS[1], ARGV[2])"


def lease_key(devices_table: str, user_id: int) -> str:
    return f"{KEYS}{devices_table}:{user_id}"


@dataclass(frozen=True)
class Lease:
    redis: Redis
    key: str
    token: str

    @classmethod
    def take(cls, redis: Redis | None, key: str, patience_seconds: float) -> Lease:
        """Waits by asking again, as clients of such a lock do; raises LockBusy when out of patience."""
        if redis is None:
            raise LockBusy("no Redis here")
        lease = cls(redis, key, uuid.uuid4().hex)
        deadline = time.monotonic() + patience_seconds
        while not redis.set(key, lease.token, nx=True, px=LEASE_MILLISECONDS):
            if time.monotonic() >= deadline:
                raise LockBusy(f"{key} was held by others for {patience_seconds} s")
            time.sleep(random.uniform(*POLL_SECONDS))  # noqa: S311  # spreads callers, guards nothing
        return lease

    def renew(self) -> None:
        """Raises LockLost where the lease is not this owner's any more. Says nothing of the moment after."""
        if not self.redis.eval(RENEW_IF_OWNER, 1, self.key, self.token, str(LEASE_MILLISECONDS)):
            raise LockLost(f"{self.key} is not ours any more")

    def release(self) -> bool:
        """Whether the lease was still this owner's; another owner's lease stays."""
        return bool(self.redis.eval(RELEASE_IF_OWNER, 1, self.key, self.token))
