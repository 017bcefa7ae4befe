"""Histories for the checker of linearizability: by hand, and those of a service that keeps every promise."""

import math
import random
from typing import Any

from loadtest.linearizability import Kind, Operation, Quota

LIMIT = 2
CODES = {0: "timeout", 404: "device_not_found", 409: "device_limit_reached", 503: "database_unavailable"}


def called(kind: Kind, device: str, sent: float, finished: float, status: int, **more: Any) -> Operation:
    """One call of user 1, by a process of its own unless one is named; status 0 had no answer."""
    more = {"process": f"client at {sent:g}", "code": CODES.get(status, ""), **more}
    return Operation(user=1, kind=kind, device=device, sent=sent, finished=finished, status=status, **more)


def register(device: str, sent: float, finished: float, status: int = 201, **more: Any) -> Operation:
    return called("register", device, sent, finished, status, **more)


def revoke(device: str, sent: float, finished: float, status: int = 204, **more: Any) -> Operation:
    return called("revoke", device, sent, finished, status, **more)


def seen(devices: str, sent: float, finished: float, **more: Any) -> Operation:
    """A list in which each letter is a device."""
    return called("list", "", sent, finished, 200, seen=tuple(devices), **more)


def quota(used: int, limit: int, sent: float, finished: float) -> Operation:
    return called("quota", "", sent, finished, 200, quota=Quota(used, limit))


def set_limit(limit: int | None, sent: float, finished: float, status: int = 200, **more: Any) -> Operation:
    return called("set_limit", "", sent, finished, status, limit=limit, **more)


class Keeper:
    """The service as it should be, for one user: written apart from the checker's model, on a plain list."""

    def __init__(self, limit: int) -> None:
        self.first_limit = self.limit = limit
        self.devices: list[str] = []

    def answer(self, asked: Operation) -> Operation:
        """What the call is told, with the quota where an answer has it."""
        if asked.kind == "list":
            return asked._replace(status=200, seen=tuple(self.devices))
        status = getattr(self, "_" + asked.kind)(asked)
        has_quota = asked.kind in ("quota", "set_limit") or (asked.kind == "register" and status != 404)
        told = Quota(len(self.devices), self.limit) if has_quota else None
        return asked._replace(status=status, code=CODES.get(status, ""), quota=told)

    def _quota(self, _: Operation) -> int:
        return 200

    def _set_limit(self, asked: Operation) -> int:
        self.limit = self.first_limit if asked.limit is None else asked.limit
        return 200

    def _revoke(self, asked: Operation) -> int:
        if asked.device not in self.devices:
            return 404
        self.devices.remove(asked.device)
        return 204

    def _register(self, asked: Operation) -> int:
        if asked.device in self.devices:
            return 200
        if asked.replaced and asked.replaced not in self.devices:
            return 404
        if len(self.devices) - bool(asked.replaced) >= self.limit:
            return 409
        if asked.replaced:
            self.devices.remove(asked.replaced)
        self.devices.append(asked.device)
        return 201


def ask(rng: random.Random, user: int, process: str, devices: str) -> Operation:
    kinds: tuple[Kind, ...] = ("register", "revoke", "list", "quota", "set_limit")
    kind = rng.choices(kinds, (10, 5, 3, 1, 1))[0]
    device = rng.choice(devices) if kind in ("register", "revoke") else ""
    replaced = rng.choice(devices) if kind == "register" and rng.random() < 0.2 else ""
    limit = rng.choice((None, 0, 1, 2, 3, 4)) if kind == "set_limit" else None
    return Operation(user, process, kind, 0.0, 0.0, device, "" if replaced == device else replaced, limit)


def truthful(
    rng: random.Random,
    calls: int,
    *,
    user: int = 1,
    processes: int = 4,
    devices: str = "abcdef",
    limit: int = LIMIT,
    unknown: float = 0.05,
) -> list[Operation]:
    """Calls of several processes, one after the other in each, which take effect at some instant between
    sent and finished; a share has no answer, and of those some take effect late or never. At the end the rows
    are looked at."""
    effects: list[tuple[float, Operation]] = []
    free_at = [rng.uniform(0, 1) for _ in range(processes)]
    for _ in range(calls):
        nth = free_at.index(min(free_at))
        sent = free_at[nth]
        finished = sent + rng.uniform(0.1, 3)
        free_at[nth] = finished + rng.uniform(0.001, 0.5)
        asked = ask(rng, user, f"client {nth}", devices)._replace(sent=sent, finished=finished)
        if rng.random() < unknown:
            asked = asked._replace(code="timeout")
            late = finished + rng.uniform(0, calls / processes)
            effects.append((rng.choice((rng.uniform(sent, finished), late, math.inf)), asked))
        else:
            effects.append((rng.uniform(sent, finished), asked))
    end = max(free_at) + 1
    rows = Operation(user, "rows", "list", end, end + 1)
    effects.append((end + rng.random(), rows))
    keeper = Keeper(limit)
    told: list[Operation] = []
    for at, asked in sorted(effects):
        answer = asked if at == math.inf else keeper.answer(asked)
        told.append(asked if asked.code == "timeout" else answer)
    rng.shuffle(told)
    return told
