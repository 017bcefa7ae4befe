"""What is run: how many users, how many callers at once, and which device each caller brings."""

from __future__ import annotations

import random
from dataclasses import dataclass

from loadtest.errors import BadUse
from loadtest.strategies import Phase

FIRST_USER = {Phase.FRESH: 1, Phase.KNOWN: 1_000_001}
MOST_CALLERS = 1_000


@dataclass(frozen=True)
class LabPlan:
    """`users` for each phase, one after another; `callers` at once on each, spread over `processes`."""

    users: int = 100
    callers: int = 20
    processes: int = 4
    limit: int = 2
    seed: int = 1

    def __post_init__(self) -> None:
        if self.users < 1:
            raise BadUse(f"--users must be at least 1, not {self.users}")
        if self.processes < 1:
            raise BadUse(f"--processes must be at least 1, not {self.processes}")
        if self.limit < 1:
            raise BadUse(f"--limit must be at least 1, not {self.limit}")
        if not self.limit < self.callers <= MOST_CALLERS:
            raise BadUse(
                f"--callers must be {self.limit + 1} (above --limit) to {MOST_CALLERS}, not {self.callers}"
            )
        if self.processes > self.callers:
            raise BadUse(f"--processes ({self.processes}) must not be above --callers ({self.callers})")

    @property
    def devices(self) -> int:
        """Different devices per user: about one caller in five repeats the call of another."""
        return max(self.limit + 1, self.callers - self.callers // 5)

    @property
    def calls(self) -> int:
        """Per phase."""
        return self.users * self.callers

    def user_id(self, phase: Phase, turn: int) -> int:
        return FIRST_USER[phase] + turn

    def user_ids(self, phase: Phase) -> range:
        return range(FIRST_USER[phase], FIRST_USER[phase] + self.users)

    def device_ids(self, user_id: int) -> list[str]:
        """The device of each caller for this user; the same seed gives the same list."""
        numbers = [caller % self.devices for caller in range(self.callers)]
        random.Random(f"{self.seed}:{user_id}").shuffle(numbers)  # noqa: S311  # repeatable on purpose
        return [f"device-{user_id}-{number}" for number in numbers]

    def callers_of(self, process: int) -> range:
        """The callers that this process has the threads for."""
        return range(process, self.callers, self.processes)
