"""The result as tables: of ratios, for the terminal and for a page, and of each contestant's own figures."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from bench.scenarios import CONTESTANTS, MEMORY, SCENARIOS
from bench.statistics import Ratio, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from bench.result import Result, Sample
    from bench.scenarios import Row, Scenario

TITLES = ("load", "against", "1 worker", "2 workers", "wanted", "processor time")
OWN_TITLES = (
    "load",
    "contestant",
    "answers/s",
    "p50 ms",
    "p99 ms",
    "service µs",
    "database µs",
    "load µs",
)
NOTHING = ""
MINUTES = 60


@dataclass(frozen=True)
class Line:
    """A row as it is shown.

    `best` is the number of workers that decides; `is_met` is None where nothing is wanted.
    """

    load: str
    against: str
    by_workers: tuple[str, str]
    best: int | None
    wanted: str
    processor: str
    is_met: bool | None
    complaint: str | None = None


def lines(result: Result) -> list[Line]:
    """Those of the scenarios that were run."""
    found = [
        _line(result, scenario, row)
        for scenario in SCENARIOS
        if any(sample.scenario == scenario.name for sample in result.samples)
        for row in scenario.rows
    ]
    return found + ([_memory_line(result)] if result.memory or MEMORY.name in result.not_run else [])


def complaints(result: Result) -> list[str]:
    """What was wanted and not reached, or could not be judged."""
    found = []
    for line in lines(result):
        where = f"{line.load}, against {line.against}"
        if line.complaint is not None:
            found.append(f"{where}: {line.complaint}")
        elif line.is_met is False:
            found.append(f"{where}: wanted is {line.wanted}")
    return found


def _line(result: Result, scenario: Scenario, row: Row) -> Line:
    theirs = result.samples_of(scenario.name, row.theirs)
    wanted = _bound(row)
    against = CONTESTANTS[row.theirs].title
    complaint = _complaint(result, scenario.name, (*row.ours, row.theirs))
    if complaint is not None:
        return Line(scenario.title, against, (NOTHING, NOTHING), None, wanted, NOTHING, None, complaint)
    found: dict[str, Ratio] = {}
    for name in row.ours:
        ours = result.samples_of(scenario.name, name)
        found[name] = ratio(*([_measured(sample, scenario) for sample in of] for of in (ours, theirs)))
    better = max if scenario.measure == "rate" else min
    best = better(found, key=lambda name: found[name].value)
    cells = {CONTESTANTS[name].workers: _shown(one) for name, one in found.items()}
    return Line(
        load=scenario.title,
        against=against,
        by_workers=(cells.get(1, NOTHING), cells.get(2, NOTHING)),
        best=CONTESTANTS[best].workers,
        wanted=wanted,
        processor=_processor_ratio(result.samples_of(scenario.name, best), theirs),
        is_met=_is_met(row, found[best].value),
    )


def _complaint(result: Result, scenario: str, names: tuple[str, ...]) -> str | None:
    for name in names:
        if name in result.not_run:
            return f"not measured: {name}: {result.not_run[name]}"
        samples = result.samples_of(scenario, name)
        failures = [sample.failure for sample in samples if sample.failure]
        if failures:
            return f"invalid: {name}: {failures[0]}"
        if len(samples) < result.plan.rounds:
            return f"not measured: {name}: the run ended before"
    return None


def _measured(sample: Sample, scenario: Scenario) -> float:
    return sample.rate if scenario.measure == "rate" else sample.p50_ms or 0.0


def _is_met(row: Row, value: float) -> bool | None:
    if row.at_least is not None:
        return value >= row.at_least
    return None if row.at_most is None else value <= row.at_most


def _bound(row: Row) -> str:
    if row.at_least is not None:
        return f"≥ {row.at_least:g}"
    return NOTHING if row.at_most is None else f"≤ {row.at_most:g}"


def _shown(one: Ratio) -> str:
    return f"{one.value:.2f} ({one.lowest:.2f} … {one.highest:.2f})"


def _processor_ratio(ours: list[Sample], theirs: list[Sample]) -> str:
    return f"{statistics.median(map(_own_us, ours)) / statistics.median(map(_own_us, theirs)):.2f}"


def _own_us(sample: Sample) -> float:
    return sample.service_us + sample.database_us


def _memory_line(result: Result) -> Line:
    against, wanted = "itself, at the start", f"≤ {MEMORY.most_mb:g} MB, flat"
    memory = result.memory
    reason = result.not_run.get(MEMORY.name) or (memory.failure if memory else None)
    if memory is None or reason:
        return Line(MEMORY.title, against, (NOTHING, NOTHING), None, wanted, NOTHING, None, reason)
    shown = (
        f"{memory.start_mb:.0f} MB at the start, {memory.end_mb:.0f} after"
        f" {memory.seconds / MINUTES:g} minutes, {memory.peak_mb:.0f} at most;"
        f" {memory.growth_mb_per_10_minutes:+.1f} MB in 10 minutes"
    )
    is_flat = memory.growth_mb_per_10_minutes <= MEMORY.most_growth_mb
    # In seconds, the pages of a first use look like growth.
    is_judged = memory.seconds >= MEMORY.judged_from_seconds
    is_met = memory.peak_mb <= MEMORY.most_mb and (is_flat or not is_judged)
    return Line(MEMORY.title, against, (shown, NOTHING), 1, wanted, NOTHING, is_met)


def headline(result: Result) -> str:
    plan = result.plan
    return (
        f"{result.date}, {result.database}, {result.processors} processors for client, service and database"
        f" together, {result.machine}. {plan.rounds} rounds of {plan.seconds} s."
    )


def markdown(result: Result) -> str:
    """Ratios alone: figures by themselves would be the machine's."""
    written = [f"| {' | '.join(TITLES)} |", f"|{' --- |' * len(TITLES)}"]
    for line in lines(result):
        by_workers = [
            f"**{cell}**" if line.best == workers else cell
            for workers, cell in enumerate(line.by_workers, start=1)
        ]
        if line.complaint is not None:
            by_workers = [f"**{line.complaint}**", NOTHING]
        cells = (line.load, line.against, *by_workers, line.wanted, line.processor)
        written.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join([*written, "", headline(result)]) + "\n"


def show(result: Result, to: Console) -> None:
    ratios, own = (Table(box=box.SIMPLE_HEAD, pad_edge=False) for _ in range(2))
    for title in TITLES:
        ratios.add_column(title)
    for line in lines(result):
        by_workers = (line.complaint, NOTHING) if line.complaint else line.by_workers
        style = {True: "green", False: "bold red", None: "bold red" if line.complaint else None}[line.is_met]
        cells = (line.load, line.against, *by_workers, line.wanted, line.processor)
        ratios.add_row(*cells, style=style)
    for number, title in enumerate(OWN_TITLES):
        own.add_column(title, justify="left" if number < 2 else "right")
    for scenario in SCENARIOS:
        for contestant in scenario.contestants:
            samples = result.samples_of(scenario.name, contestant.name)
            if samples:
                own.add_row(scenario.name, contestant.title, *_own_figures(samples))
    to.print(headline(result))
    to.print(ratios)
    to.print("Medians; processor time per answer:")
    to.print(own)
    for complaint in complaints(result):
        to.print(complaint, style="bold red", soft_wrap=True)


def _own_figures(samples: list[Sample]) -> list[str]:
    def median(name: str, form: str) -> str:
        values = [value for sample in samples if (value := getattr(sample, name)) is not None]
        return form.format(statistics.median(values)) if values else NOTHING

    return [
        median("rate", "{:,.0f}"),
        *(median(name, "{:.2f}") for name in ("p50_ms", "p99_ms")),
        *(median(name, "{:,.0f}") for name in ("service_us", "database_us", "load_us")),
    ]
