"""The result as text: ratios for the terminal and for a page, and each contestant's own figures."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from bench.rows import complaints, lines
from bench.scenarios import SCENARIOS

if TYPE_CHECKING:
    from rich.console import Console

    from bench.result import Result, Sample
    from bench.rows import Line

TITLES = ("load", "against", "1 worker", "2 workers", "wanted", "processor time")
FIGURES = {
    "answers/s": ("rate", "{:,.0f}"),
    "p50 ms": ("p50_ms", "{:.2f}"),
    "p99 ms": ("p99_ms", "{:.2f}"),
    "service µs": ("service_us", "{:,.0f}"),
    "database µs": ("database_us", "{:,.0f}"),
    "load µs": ("load_us", "{:,.0f}"),
    "others": ("others_share", "{:.0%}"),
}
# From here on, what else ran on the machine decides.
MUCH_BY_OTHERS = 0.1


def headline(result: Result) -> str:
    plan = result.plan
    return (
        f"{result.date}, {result.database}, {result.processors} processors for load, service and database"
        f" together, {result.machine}; {plan.rounds} rounds, each run {plan.seconds} s, other work on the"
        f" machine up to {_others(result):.0%}. By `{result.command}`."
    )


def _others(result: Result) -> float:
    return max((sample.others_share for sample in result.samples), default=0.0)


def markdown(result: Result) -> str:
    """Ratios alone: rates by themselves would be the machine's."""
    written = [f"| {' | '.join(TITLES)} |", f"|{' --- |' * len(TITLES)}"]
    for line in lines(result):
        decisive = [f"**{cell}**" if line.best == number else cell for number, cell in _cells(line)]
        cells = (line.load, line.against, *decisive, line.wanted, line.processor)
        written.append(f"| {' | '.join(cells)} |")
    reasons = [f"- {line.name}: {line.complaint}" for line in lines(result) if line.complaint is not None]
    return "\n".join([*written, "", headline(result), *(["", *reasons] if reasons else [])]) + "\n"


def _cells(line: Line) -> list[tuple[int | None, str]]:
    """One and two workers; a complaint's first words stand in for what is not there."""
    if line.complaint is not None:
        return [(line.best, line.complaint.partition(":")[0]), (0, "")]
    return list(enumerate(line.by_workers, start=1))


def show(result: Result, to: Console) -> None:
    to.print(headline(result))
    to.print(_table_of_ratios(result))
    to.print("Medians; processor time per answer, and what other work took of the machine's:")
    to.print(_table_of_figures(result))
    for complaint in complaints(result):
        to.print(complaint, style="bold red", soft_wrap=True)
    if _others(result) >= MUCH_BY_OTHERS:
        to.print("The machine had much else to do: measure again on a quiet one.", style="bold red")


def _table_of_ratios(result: Result) -> Table:
    table = Table(*TITLES, box=box.SIMPLE_HEAD, pad_edge=False)
    for line in lines(result):
        is_bad = line.is_met is False or line.complaint is not None
        cells = (line.load, line.against, *(cell for _, cell in _cells(line)), line.wanted, line.processor)
        table.add_row(*cells, style="bold red" if is_bad else "green" if line.is_met else None)
    return table


def _table_of_figures(result: Result) -> Table:
    table = Table("load", "contestant", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in FIGURES:
        table.add_column(title, justify="right")
    for scenario in SCENARIOS:
        for contestant in scenario.contestants:
            samples = result.samples_of(scenario.name, contestant.name)
            if samples:
                figures = (_median(samples, *figure) for figure in FIGURES.values())
                table.add_row(scenario.name, contestant.title, *figures)
    return table


def _median(samples: list[Sample], name: str, form: str) -> str:
    values = [value for sample in samples if (value := getattr(sample, name)) is not None]
    return form.format(statistics.median(values)) if values else ""
