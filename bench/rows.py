"""The rows of the table: what each ratio is, and whether it is what is wanted."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bench.scenarios import CONTESTANTS, MEMORY, SCENARIOS
from bench.statistics import Ratio, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.result import Result, Sample
    from bench.scenarios import Row, Scenario

MINUTE_SECONDS = 60


@dataclass(frozen=True)
class Line:
    """A row as it is shown.

    `by_workers` has one worker's ratio and two workers'; `best` is the number of workers that decides.
    `is_met` is None where nothing is wanted. `complaint` says why there is no ratio.
    """

    load: str
    against: str
    wanted: str
    by_workers: tuple[str, str] = ("", "")
    best: int | None = None
    processor: str = ""
    is_met: bool | None = None
    complaint: str | None = None

    @property
    def name(self) -> str:
        return f"{self.load}, against {self.against}"


def lines(result: Result) -> list[Line]:
    """Those of the scenarios that were asked for."""
    asked = [scenario for scenario in SCENARIOS if scenario.name in result.scenarios]
    found = [_line(result, scenario, row) for scenario in asked for row in scenario.rows]
    return found + ([_memory_line(result)] if MEMORY.name in result.scenarios else [])


def complaints(result: Result) -> Iterator[str]:
    """What is wanted and was not reached, or could not be judged."""
    for line in lines(result):
        if line.complaint is not None:
            yield f"{line.name}: {line.complaint}"
        elif line.is_met is False:
            yield f"{line.name}: wanted is {line.wanted}"


def _line(result: Result, scenario: Scenario, row: Row) -> Line:
    load = scenario.title.format_map(asdict(result.plan))
    against = row.against or CONTESTANTS[row.theirs].title
    complaint = _complaint(result, scenario, (*row.ours, row.theirs))
    if complaint is not None:
        return Line(load, against, _bound(row), complaint=complaint)
    theirs = result.samples_of(scenario.name, row.theirs)
    found = {name: _ratio(scenario, result.samples_of(scenario.name, name), theirs) for name in row.ours}
    better = max if scenario.measure == "rate" else min
    best = better(found, key=lambda name: found[name].value)
    cells = {CONTESTANTS[name].workers: _shown(one) for name, one in found.items()}
    return Line(
        load=load,
        against=against,
        wanted=_bound(row),
        by_workers=(cells.get(1, ""), cells.get(2, "")),
        best=CONTESTANTS[best].workers,
        processor=_processor_ratio(result.samples_of(scenario.name, best), theirs),
        is_met=_is_met(row, found[best].value),
    )


def _complaint(result: Result, scenario: Scenario, names: tuple[str, ...]) -> str | None:
    for name in names:
        if name in result.not_run:
            return f"not measured: {name}: {result.not_run[name]}"
        samples = result.samples_of(scenario.name, name)
        for sample in samples:
            if sample.failure is not None:
                return f"INVALID: {name}: {sample.failure}"
        if len(samples) < result.plan.rounds:
            return f"not measured: {name}: the run was ended before"
    return None


def _ratio(scenario: Scenario, ours: list[Sample], theirs: list[Sample]) -> Ratio:
    return ratio([_measured(scenario, one) for one in ours], [_measured(scenario, one) for one in theirs])


def _measured(scenario: Scenario, sample: Sample) -> float:
    return sample.rate if scenario.measure == "rate" else sample.p50_ms or 0.0


def _is_met(row: Row, value: float) -> bool | None:
    if row.at_least is not None:
        return value >= row.at_least
    return None if row.at_most is None else value <= row.at_most


def _bound(row: Row) -> str:
    if row.at_least is not None:
        return f"≥ {row.at_least:g}"
    return "" if row.at_most is None else f"≤ {row.at_most:g}"


def _shown(one: Ratio) -> str:
    return f"{one.value:.2f} ({one.lowest:.2f} … {one.highest:.2f})"


def _processor_ratio(ours: list[Sample], theirs: list[Sample]) -> str:
    return f"{statistics.median(map(_cost, ours)) / statistics.median(map(_cost, theirs)):.2f}"


def _cost(sample: Sample) -> float:
    return sample.service_us + sample.database_us


def _memory_line(result: Result) -> Line:
    against, wanted = "itself, at the start", f"≤ {MEMORY.most_mb:g} MB, flat"
    memory = result.memory
    if memory is None:
        reason = result.not_run.get(MEMORY.name, "the run was ended before")
        return Line(MEMORY.title, against, wanted, complaint=f"not measured: {reason}")
    if memory.failure is not None:
        return Line(MEMORY.title, against, wanted, complaint=f"INVALID: {memory.failure}")
    growth = memory.growth_mb_per_10_minutes
    shown = (
        f"{memory.start_mb:.0f} MB at the start, {memory.peak_mb:.0f} at most, {memory.end_mb:.0f} after"
        f" {memory.seconds / MINUTE_SECONDS:.1f} minutes; {growth:+.1f} in 10 minutes"
    )
    # In seconds, the pages of a first use look like growth.
    is_flat = growth <= MEMORY.most_growth_mb or memory.seconds < MEMORY.judged_from_seconds
    is_met = is_flat and memory.peak_mb <= MEMORY.most_mb
    return Line(MEMORY.title, against, wanted, (shown, ""), best=1, is_met=is_met)
