"""What is measured, how often, and in which order."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.scenarios import Contestant, Scenario

Kind = Literal["mariadb", "mysql"]

# Of six users in turn, what each has in tenths of the average: most have a few devices, some have many.
SHARES = (3, 6, 9, 9, 15, 18)
SPARE_DEVICES = 4  # how far the limit lies above what any of them has


@dataclass(frozen=True)
class Plan:
    """Durations in whole seconds, as one of the peers takes them."""

    seconds: int = 10
    warm_up_seconds: int = 2
    rounds: int = 3
    seed: int = 1
    filled_users: int = 3_000_000
    filled_devices: int = 10_000_000
    memory_seconds: int = 600
    buffer_pool: str = "4G"
    server: Kind = "mariadb"

    @property
    def filled_limit(self) -> int:
        """A limit at which the filled database's users register as the users of an empty one do."""
        return math.ceil(max(SHARES) / 10 * self.filled_devices / self.filled_users) + SPARE_DEVICES

    def turns(self, scenario: Scenario) -> Iterator[tuple[int, Contestant]]:
        """Each contestant once in each round, from 0 on. The order within a round is the seed's.

        What the machine does otherwise then falls on all alike, and nobody always comes after the same one.
        """
        chance = random.Random(f"{self.seed} {scenario.name}")  # noqa: S311 - an order, no secret
        for number in range(self.rounds):
            for contestant in chance.sample(scenario.contestants, len(scenario.contestants)):
                yield number, contestant


QUICK = Plan(
    seconds=1, warm_up_seconds=1, rounds=2, filled_users=60_000, filled_devices=200_000, memory_seconds=10
)
