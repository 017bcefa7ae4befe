"""What a load may meet or miss, step by step: a few callers, one free place, and an order that is forced.

A holder is stopped by an event or killed; a lease is ended by an explicit PEXPIRE, as its time would end
it. Nothing here depends on how fast anything is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from loadtest.compare.crew import SPAWN
from loadtest.compare.scene import PLACES, HeldUp, Scene, hold_until_killed
from loadtest.strategies import Point, lock_row, redis_lock, redis_lock_fenced
from loadtest.strategies.redis_lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtest.strategies import Strategy


class Verdict(StrEnum):
    HOLDS = "holds"
    BREAKS = "breaks"
    STOPS = "stops"


@dataclass(frozen=True)
class Shown:
    """One interleaving: what had to come of it, what came of it, and what was seen on the way."""

    name: str
    strategy: str
    expected: Verdict
    observed: Verdict | None
    seen: str

    @property
    def surprise(self) -> str:
        if self.observed in (None, self.expected):
            return ""
        return (
            f"{self.name} ({self.strategy}): expected {self.expected}, observed {self.observed}: {self.seen}"
        )


@dataclass(frozen=True)
class Interleaving:
    name: str
    strategy: Strategy
    expected: Verdict
    play: Callable[[Scene], tuple[Verdict, str]]
    restarts_redis: bool = False

    def run(self, scene: Scene) -> Shown:
        missing = scene.lacks(self.strategy, restart=self.restarts_redis)
        if missing:
            return Shown(self.name, self.strategy.name, self.expected, None, missing)
        scene.prepare(self.strategy)
        observed, seen = self.play(scene)
        return Shown(self.name, self.strategy.name, self.expected, observed, seen)


def limit_kept(scene: Scene) -> Verdict:
    return Verdict.HOLDS if scene.devices() <= PLACES else Verdict.BREAKS


def pause_past_the_lease(scene: Scene) -> tuple[Verdict, str]:
    """The holder stops with its work half done, its lease ends, the next one takes the lock and registers."""
    with HeldUp(scene, "first", scene.strategy.pause_at or Point.COUNTED) as holder:
        scene.end_lease()
        second = scene.told(scene.caller(), "second")
    return limit_kept(
        scene
    ), f"second caller: {second}; holder, woken: {holder.told}; devices: {scene.devices()}, limit: {PLACES}"


def pause_with_the_lock_row(scene: Scene) -> tuple[Verdict, str]:
    """The same pause, but what is held is a row lock, which lasts as long as the holder's transaction."""
    with HeldUp(scene, "first", Point.COUNTED) as holder:
        waiting = scene.told(scene.caller(lock_wait_seconds=1), "second")
    after = scene.told(scene.caller(), "second")
    return limit_kept(
        scene
    ), f"second caller: {waiting}; holder, woken: {holder.told}; second caller again: {after}"


def old_owner_releases(scene: Scene) -> tuple[Verdict, str]:
    """A lease ends, the next caller takes it, and then the old owner releases and renews by its own token."""
    old = Lease.take(scene.redis, scene.key, 0)
    scene.end_lease()
    new = Lease.take(scene.redis, scene.key, 0)
    released = old.release()
    third = scene.told(scene.caller(), "third")
    new.renew()
    kept = new.release()
    verdict = Verdict.HOLDS if not released and kept and scene.devices() == 0 else Verdict.BREAKS
    return (
        verdict,
        f"old owner released: {released}; third caller meanwhile: {third}; new owner still had it: {kept}",
    )


def old_owner_deletes(scene: Scene) -> tuple[Verdict, str]:
    """The same, where release is a plain DEL: it deletes the lease of the caller who is at work."""
    Lease.take(scene.redis, scene.key, 0)
    scene.end_lease()
    with HeldUp(scene, "second", Point.COUNTED) as holder:
        scene.delete_lease()
        third = scene.told(scene.caller(), "third")
    return limit_kept(
        scene
    ), f"third caller: {third}; the owner: {holder.told}; devices: {scene.devices()}, limit: {PLACES}"


def holder_killed(scene: Scene) -> tuple[Verdict, str]:
    """SIGKILL while it holds the lock: nobody releases. With a lease, nobody gets in until it ends."""
    ours, theirs = SPAWN.Pipe()
    holder = SPAWN.Process(
        target=hold_until_killed, args=(scene.strategy.name, scene.address, scene.redis_url, theirs)
    )
    holder.start()
    theirs.close()
    ours.recv()
    holder.kill()
    holder.join()
    ours.close()
    after = scene.told(scene.caller(), "second")
    if after == "registered":
        return limit_kept(scene), f"second caller, at once: {after}"
    scene.end_lease()
    later = scene.told(scene.caller(), "second")
    verdict = Verdict.STOPS if later == "registered" and scene.devices() == PLACES else Verdict.BREAKS
    return verdict, f"second caller, at once: {after}; when the lease had ended: {later}"


def redis_gone(scene: Scene) -> tuple[Verdict, str]:
    """Redis dies while a holder works: it commits and cannot release, and nobody else gets in."""
    with HeldUp(scene, "first", Point.COUNTED) as holder:
        scene.kill_redis()
        second = scene.told(scene.caller(), "second")
    rows = scene.devices()
    scene.start_redis()
    verdict = Verdict.STOPS if second == "no Redis" and rows <= PLACES else limit_kept(scene)
    return verdict, f"second caller: {second}; holder, woken: {holder.told}, yet {rows} device is there"


def redis_forgets(scene: Scene) -> tuple[Verdict, str]:
    """Redis comes back empty while a holder works: its lease is forgotten, and so is the fencing number."""
    with HeldUp(scene, "first", scene.strategy.pause_at or Point.COUNTED) as holder:
        scene.kill_redis()
        scene.start_redis()
        second = scene.told(scene.caller(), "second")
    return limit_kept(
        scene
    ), f"second caller: {second}; holder, woken: {holder.told}; devices: {scene.devices()}, limit: {PLACES}"


def redis_forgets_numbers(scene: Scene) -> tuple[Verdict, str]:
    """The same for a user whose numbers had risen: refused until the new ones have passed them."""
    caller = scene.caller()
    before = [scene.told(caller, "first") for _ in range(3)]
    scene.kill_redis()
    scene.start_redis()
    after = [scene.told(scene.caller(), "first") for _ in range(4)]
    verdict = Verdict.STOPS if after[0] == "lock lost" else limit_kept(scene)
    return verdict, f"before: {', '.join(before)}; the same call after: {', '.join(after)}"


INTERLEAVINGS = (
    Interleaving("holder pauses past its lease", redis_lock.PAUSED, Verdict.BREAKS, pause_past_the_lease),
    Interleaving(
        "holder pauses past its lease", redis_lock_fenced.PAUSED, Verdict.HOLDS, pause_past_the_lease
    ),
    Interleaving("holder pauses as long", lock_row.STRATEGY, Verdict.HOLDS, pause_with_the_lock_row),
    Interleaving("old owner releases, by token", redis_lock.STRATEGY, Verdict.HOLDS, old_owner_releases),
    Interleaving("old owner releases, by plain DEL", redis_lock.STRATEGY, Verdict.BREAKS, old_owner_deletes),
    Interleaving("holder killed before release", redis_lock.STRATEGY, Verdict.STOPS, holder_killed),
    Interleaving("holder killed before release", lock_row.STRATEGY, Verdict.HOLDS, holder_killed),
    Interleaving("Redis gone", redis_lock.STRATEGY, Verdict.STOPS, redis_gone, restarts_redis=True),
    Interleaving(
        "Redis back, and empty", redis_lock.STRATEGY, Verdict.BREAKS, redis_forgets, restarts_redis=True
    ),
    Interleaving(
        "Redis back, and empty", redis_lock_fenced.PAUSED, Verdict.HOLDS, redis_forgets, restarts_redis=True
    ),
    Interleaving(
        "Redis back, empty, numbers low",
        redis_lock_fenced.STRATEGY,
        Verdict.STOPS,
        redis_forgets_numbers,
        restarts_redis=True,
    ),
)
