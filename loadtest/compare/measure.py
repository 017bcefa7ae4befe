"""From samples and rows to one row of the table, and whether the strategy behaved as it had to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from loadtest.compare.database import Audit
from loadtest.strategies import Outcome, Phase, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from loadtest.compare.calls import Sample

THOUSAND = 1_000


@dataclass(frozen=True)
class Measured:
    """What a load did. Latencies in seconds, from the barrier to the final answer, retries included."""

    users: int
    calls: int
    over_limit: int
    most_devices: int
    duplicates: int
    lost: int
    gave_up: int
    deadlocks: int
    lock_waits: int
    retries: int
    elapsed_seconds: float
    p50_seconds: float
    p99_seconds: float

    @property
    def broke(self) -> bool:
        return bool(self.over_limit or self.duplicates or self.lost)

    @property
    def calls_per_second(self) -> float:
        return self.calls / self.elapsed_seconds if self.elapsed_seconds else 0.0

    def per_thousand(self, count: int) -> float:
        return count * THOUSAND / self.calls if self.calls else 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not pass (nearest rank); 0 where there is none."""
    if not ordered:
        return 0.0
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(rank, 1) - 1]


def measure(samples: Sequence[Sample], found: Audit, users: int) -> Measured:
    """Lost: told `registered`, and no row is there."""
    latencies = sorted(sample.finished_at - sample.sent_at for sample in samples)
    answers = Counter(sample.outcome for sample in samples)
    told = {(sample.user_id, sample.device_id) for sample in samples if sample.outcome is Outcome.REGISTERED}
    return Measured(
        users=users,
        calls=len(samples),
        over_limit=found.over_limit,
        most_devices=found.most_devices,
        duplicates=found.duplicates,
        lost=len(told - found.rows),
        gave_up=answers[Outcome.GAVE_UP],
        deadlocks=sum(sample.deadlocks for sample in samples),
        lock_waits=sum(sample.lock_waits for sample in samples),
        retries=sum(sample.retries for sample in samples),
        elapsed_seconds=max(s.finished_at for s in samples) - min(s.sent_at for s in samples),
        p50_seconds=percentile(latencies, 0.50),
        p99_seconds=percentile(latencies, 0.99),
    )


@dataclass(frozen=True)
class Result:
    """One strategy: measured in each phase and over both, or the reason why it was not run."""

    strategy: Strategy
    phases: Mapping[Phase, Measured] = field(default_factory=dict)
    both: Measured | None = None
    not_run: str = ""

    @property
    def expected(self) -> str:
        return in_words(self.strategy.breaks)

    @property
    def observed(self) -> str:
        """In the words of the expectation; or why nothing was observed."""
        return self.not_run or in_words({phase for phase, measured in self.phases.items() if measured.broke})

    @property
    def surprises(self) -> list[str]:
        """In what it did not behave as expected, in words; empty where it did, or was not run."""
        found = []
        for phase, measured in self.phases.items():
            must_break = phase in self.strategy.breaks
            if must_break and not measured.over_limit:
                found.append(f"{self.strategy.name} must break for {phase} users, and none passed the limit")
            if not must_break and measured.broke:
                found.append(
                    f"{self.strategy.name} must hold for {phase} users: {measured.over_limit} over the limit,"
                    f" {measured.duplicates} duplicates, {measured.lost} lost"
                )
        return found


def result_of(
    strategy: Strategy, samples: Mapping[Phase, list[Sample]], audits: Mapping[Phase, Audit], users: int
) -> Result:
    """`users` per phase. The time between the phases is nobody's."""
    phases = {phase: measure(samples[phase], audits[phase], users) for phase in samples}
    found = Audit(
        over_limit=sum(audit.over_limit for audit in audits.values()),
        most_devices=max(audit.most_devices for audit in audits.values()),
        duplicates=sum(audit.duplicates for audit in audits.values()),
        rows=frozenset().union(*(audit.rows for audit in audits.values())),
    )
    together = measure([sample for part in samples.values() for sample in part], found, users * len(phases))
    elapsed_seconds = sum(part.elapsed_seconds for part in phases.values())
    return Result(strategy, phases, replace(together, elapsed_seconds=elapsed_seconds))


def in_words(broken: AbstractSet[Phase]) -> str:
    """`holds`, `breaks`, or for whom it breaks."""
    if not broken:
        return "holds"
    return "breaks" if len(broken) == len(Phase) else f"breaks: {', '.join(sorted(broken))}"
