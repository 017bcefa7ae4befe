"""Many calls at once, spread over the nodes of a cluster."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from app.db import Database, Tx
from app.devices import changes, service
from app.devices.schemas import NewDevice
from app.errors import DeviceLimitReached, Unavailable
from app.etags import Precondition
from app.settings import Settings
from tests.use_cases import ORIGIN

CALLERS = 21
PATIENCE_SECONDS = 90


@dataclass(frozen=True)
class Nodes:
    """The service's pools on nodes 1, 2 and 3."""

    pools: Sequence[Database]

    def register(self, node: int, user_id: int, device_id: str, limit: int) -> str:
        """What the caller is told: created, there, limit, or the code of a 503."""
        return told(lambda: self.pools[node - 1].transact(register, limit, user_id, device_id))

    def revoke(self, node: int, user_id: int, device_id: str) -> None:
        self.pools[node - 1].transact(changes.revoke, ORIGIN, user_id, device_id, Precondition())

    def devices(self, node: int, user_id: int) -> list[str]:
        """Raises Unavailable (503)."""
        page, _ = self.pools[node - 1].transact(
            service.list_devices, of(2), user_id, None, 50, read_only=True
        )
        return sorted(device.device_id for device in page)

    def race(self, user_id: int, limit: int, callers: int = CALLERS) -> Counter[str]:
        """New devices of one user, from all nodes at one instant: how often each answer was given."""
        return self.races([user_id], limit, callers)

    def races(self, user_ids: Sequence[int], limit: int, callers: int = CALLERS) -> Counter[str]:
        """The same of several users at that instant."""
        number = callers * len(user_ids)
        barrier = threading.Barrier(number, timeout=PATIENCE_SECONDS)

        def call(caller: int) -> str:
            user_id = user_ids[caller % len(user_ids)]
            node = caller // len(user_ids) % len(self.pools) + 1
            barrier.wait()
            return self.register(node, user_id, f"device-{caller}", limit)

        with ThreadPoolExecutor(number) as threads:
            return Counter(threads.map(call, range(number)))


def of(limit: int) -> Settings:
    return Settings.model_construct(
        default_device_limit=limit, default_lease_seconds=None, max_registrations_per_day=0
    )


def register(tx: Tx, limit: int, user_id: int, device_id: str) -> service.Registered:
    return service.register(tx, of(limit), ORIGIN, user_id, device_id, NewDevice())


def told(call: Callable[[], Any]) -> str:
    try:
        return "created" if call().created else "there"
    except DeviceLimitReached:
        return "limit"
    except Unavailable as unavailable:
        return str(unavailable.code)
