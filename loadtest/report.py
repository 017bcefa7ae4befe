"""A run told: the table and the verdict in the terminal, the files in a folder, the exit status."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest import page, record
from loadtest.client import Sample
from loadtest.record import PAGE, Record, State, Verdict
from loadtest.samples import PERCENTILES, as_text, figures, figures_of_all

STYLES: dict[State, str] = {"holds": "bold green", "broken": "bold red", "unproven": "bold yellow"}
WORDS: dict[State, str] = {"holds": "HOLDS", "broken": "BROKEN", "unproven": "UNPROVEN"}


def tell(run: Record, samples: list[Sample], folder: Path, console: Console) -> int:
    """Writes the page, prints table and verdict, returns the exit status."""
    verdict = record.verdict(run, samples)
    path = folder / PAGE
    path.write_text(page.page(run, samples, verdict), encoding="utf-8")
    console.print(table(samples))
    for line in schedule_lines(run, samples):
        console.print(line, highlight=False)
    print_verdict(verdict, console)
    console.print(f"report: {path}", highlight=False, soft_wrap=True, markup=False)
    return verdict.exit_status


def table(samples: list[Sample]) -> Table:
    rows = Table(
        header_style="bold", caption="latency from the instant each call was due", caption_justify="left"
    )
    rows.add_column("answer")
    rows.add_column("calls", justify="right")
    for percent in PERCENTILES:
        rows.add_column(f"p{percent:g}", justify="right")
    rows.add_column("max", justify="right")
    for line in [*figures(samples), figures_of_all(samples)]:
        latencies = [as_text(seconds) for seconds in (*line.percentiles, line.longest)]
        rows.add_row(line.answer.label, f"{line.calls:,}", *latencies)
    return rows


def schedule_lines(run: Record, samples: list[Sample]) -> list[str]:
    """Whether the run itself did what it was to do; otherwise its figures say little."""
    rate = f"{len(samples) / run.seconds:,.0f}/s" if run.seconds else "-"
    lines = [f"{len(samples):,} calls in {as_text(run.seconds)} ({rate})"]
    if run.kind == "steady":
        share = f"{run.sent_of_planned:.4f}"
        lines.append(f"sent/planned {share} ({run.on_time:,} of {run.planned:,} before the schedule ended)")
    if run.unsent:
        lines.append(f"{run.unsent:,} calls were never sent")
    return lines


def print_verdict(verdict: Verdict, console: Console) -> None:
    style = STYLES[verdict.state]
    console.print(f"[{style}]{WORDS[verdict.state]}[/] {escape(verdict.headline)}", highlight=False)
    for reason in verdict.reasons:
        console.print(f"  {escape(reason)}", highlight=False, soft_wrap=True)
