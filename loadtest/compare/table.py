"""The report as text: a table for the terminal, and the same in Markdown for a README."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadtest.compare.columns import NUMBER_TITLES, SERVER_TITLE, numbers, other_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtest.compare.measure import Result
    from loadtest.compare.run import LabReport

WIDTH_WITHOUT_TERMINAL = 200
STRATEGY_COLUMNS = ("strategy", "expected", "observed")
STEP_COLUMNS = ("interleaving", "strategy", "expected", "observed", "what was seen")


def console(*, stderr: bool = False) -> Console:
    """Wide enough for the table where no terminal says how wide it is."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)


def show(report: LabReport, to: Console) -> None:
    to.print(headline(report))
    to.print(_strategy_table(report))
    for result in report.results:
        to.print(
            Text.assemble((result.strategy.name, "bold"), f"  {result.strategy.what} {result.strategy.why}")
        )
    if report.shown:
        to.print(_step_table(report))
    for words in conclusion(report):
        to.print(Text(words, style="bold red" if report.surprises else "bold"))


def headline(report: LabReport) -> str:
    plan = report.plan
    return (
        f"{', '.join(filter(None, (report.server, report.redis, report.machine)))}."
        f" {plan.users} fresh and {plan.users} known users, one after another,"
        f" {plan.callers} callers at once on each from {plan.processes} processes, limit {plan.limit}."
    )


def conclusion(report: LabReport) -> list[str]:
    """The last lines: what was not as expected, or that all was; then what was not run."""
    not_run = [f"{result.strategy.name} was not run: {result.not_run}" for result in report.not_run]
    if report.interrupted:
        not_run.append(f"Interrupted: {len(report.results)} strategies done.")
    done = f"strategies: {len(report.results) - len(report.not_run)}"
    played = f"interleavings: {sum(shown.observed is not None for shown in report.shown)}"
    as_expected = f"All as expected ({done}, {played})"
    return [*(report.surprises or [as_expected]), *not_run]


def _style(result: Result) -> str:
    if result.not_run:
        return "dim"
    return "bold red" if result.surprises else ("green" if result.observed == "holds" else "yellow")


def _strategy_table(report: LabReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in STRATEGY_COLUMNS:
        table.add_column(title, no_wrap=title == "strategy")
    for title in NUMBER_TITLES:
        table.add_column(title, justify="right")
    table.add_column(SERVER_TITLE)
    for result in report.results:
        seen = Text(result.observed, style=_style(result))
        table.add_row(result.strategy.name, result.expected, seen, *numbers(result), other_server(result))
    return table


def _step_table(report: LabReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in STEP_COLUMNS:
        table.add_column(title)
    for shown in report.shown:
        style = "bold red" if shown.surprise else "dim" if shown.observed is None else ""
        table.add_row(
            shown.name,
            shown.strategy,
            shown.expected,
            Text(shown.observed or "not run", style=style),
            shown.seen,
        )
    return table


def markdown(report: LabReport) -> str:
    """Tables as measured, with versions and the command, ready to paste."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: LabReport) -> Iterator[str]:
    yield headline(report)
    yield ""
    yield f"```\n{report.command}\n```"
    yield ""
    yield _row([*STRATEGY_COLUMNS, *NUMBER_TITLES, SERVER_TITLE])
    yield _row(["---"] * len(STRATEGY_COLUMNS) + ["---:"] * len(NUMBER_TITLES) + ["---"])
    for result in report.results:
        mark = "**" if result.surprises else ""
        seen = f"{mark}{result.observed}{mark}"
        name = f"`{result.strategy.name}`"
        yield _row([name, result.expected, seen, *numbers(result), other_server(result)])
    yield ""
    for result in report.results:
        yield f"- `{result.strategy.name}`: {result.strategy.what} {result.strategy.why}"
    if report.shown:
        yield ""
        yield _row(list(STEP_COLUMNS))
        yield _row(["---"] * len(STEP_COLUMNS))
    for shown in report.shown:
        yield _row(
            [shown.name, f"`{shown.strategy}`", shown.expected, shown.observed or "not run", shown.seen]
        )
    yield ""
    yield " ".join(conclusion(report))


def _row(cells_of_row: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells_of_row) + " |"
