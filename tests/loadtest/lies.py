"""Histories made untrue in one place, and the judge of what is untrue, who tries every order."""

import math
import random
from collections.abc import Callable, Sequence

from loadtest.linearizability import Operation
from tests.loadtest.told import CODES, Keeper

Lie = Callable[[random.Random, Sequence[Operation]], list[Operation]]


def has_an_order(operations: Sequence[Operation], limit: int, until: float = math.inf) -> bool:
    """The definition, with nothing done to be quick. Calls of unknown outcome are those without an answer;
    those answered after `until` need not have happened."""

    def goes_on(rest: tuple[Operation, ...], devices: tuple[str, ...], limit_now: int) -> bool:
        horizon = min((one.finished for one in rest if one.status and one.finished <= until), default=None)
        if horizon is None:
            return True
        for n, one in enumerate(rest):
            keeper = Keeper(limit)
            keeper.devices, keeper.limit = list(devices), limit_now
            if one.sent > horizon or not (_same(one, keeper.answer(one)) or not one.status):
                continue
            if goes_on((*rest[:n], *rest[n + 1 :]), tuple(keeper.devices), keeper.limit):
                return True
        return False

    return goes_on(tuple(operations), (), limit)


def _same(heard: Operation, told: Operation) -> bool:
    return (
        heard.status == told.status
        and sorted(heard.seen) == sorted(told.seen)
        and heard.quota in (None, told.quota)
    )


def status_flipped(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """An answer that is another one of its kind's."""
    answers = {"register": (200, 201, 404, 409), "revoke": (204, 404)}
    return _changed(
        rng,
        operations,
        [one for one in operations if one.status and one.kind in answers],
        lambda one: _with_status(one, rng.choice([s for s in answers[one.kind] if s != one.status])),
    )


def effect_dropped(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """A call that never reached the service, and whose answer was made up as if it had changed something."""
    return _changed(
        rng,
        operations,
        [one for one in operations if one.status in (200, 404, 409) and one.kind in ("register", "revoke")],
        lambda one: _with_status(one, 201 if one.kind == "register" else 204),
    )


def write_forgotten(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """What was acknowledged, taken out of the history: as if it had happened behind the clients' backs."""
    writes = [one for one in operations if one.status in (201, 204)]
    if not writes:
        return list(operations)
    gone = rng.choice(writes)
    return [one for one in operations if one is not gone]


def device_in_list(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """A list with a device too many, or with one too few."""
    names = sorted({one.device for one in operations if one.device} | {"z"})

    def lie(one: Operation) -> Operation:
        name = rng.choice(names)
        seen = tuple(d for d in one.seen if d != name) if name in one.seen else (*one.seen, name)
        return one._replace(seen=seen)

    return _changed(rng, operations, [o for o in operations if o.kind == "list" and o.status], lie)


def quota_wrong(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    def lie(one: Operation) -> Operation:
        assert one.quota is not None
        used = one.quota.used + rng.choice((-1, 1))
        return one._replace(quota=one.quota._replace(used=used))

    return _changed(rng, operations, [one for one in operations if one.status and one.quota], lie)


def moved_in_time(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """A call that is said to have been over before its effect: a stale read, or an order that was not."""
    end = max(one.finished for one in operations)

    def lie(one: Operation) -> Operation:
        sent = rng.uniform(0, end)
        return one._replace(sent=sent, finished=sent + rng.uniform(0.01, 0.5), process="elsewhere")

    return _changed(rng, operations, [one for one in operations if one.status], lie)


def answered_twice(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """Two clients are told of one effect."""
    writes = [one for one in operations if one.status in (201, 204)]
    return [*operations, rng.choice(writes)._replace(process="elsewhere")] if writes else list(operations)


LIES: tuple[Lie, ...] = (
    status_flipped,
    effect_dropped,
    write_forgotten,
    device_in_list,
    quota_wrong,
    moved_in_time,
    answered_twice,
)


def _with_status(one: Operation, status: int) -> Operation:
    return one._replace(status=status, code=CODES.get(status, ""))


def _changed(
    rng: random.Random,
    operations: Sequence[Operation],
    candidates: Sequence[Operation],
    lie: Callable[[Operation], Operation],
) -> list[Operation]:
    if not candidates:
        return list(operations)
    chosen = rng.choice(candidates)
    return [lie(one) if one is chosen else one for one in operations]
