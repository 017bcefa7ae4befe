"""A run told: the faults as a table, the verdict, the page, the exit status."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtest import elements
from loadtest.faults import record
from loadtest.faults.outages import Outage
from loadtest.faults.record import Record
from loadtest.page import histories
from loadtest.record import NAMED_USERS, PAGE
from loadtest.report import print_verdict
from loadtest.samples import as_text

COLUMNS = ("fault", "at", "mended after", "any call", "a write", "worst replica", "unknown")
CAPTION = (
    "the longest time until the next fault in which no call, no write, and no call through the worst replica "
    "succeeded; calls of unknown outcome"
)


def tell(run: Record, folder: Path, console: Console) -> int:
    """Writes record and page, prints table and verdict, returns the exit status."""
    record.write(folder, run)
    verdict = record.verdict(run)
    path = folder / PAGE
    path.write_text(page(run), encoding="utf-8")
    console.print(table(run))
    print_verdict(verdict, console)
    for violation in run.findings.violations[:NAMED_USERS]:
        console.print(f"\n{violation}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"report: {path}", highlight=False, soft_wrap=True, markup=False)
    return verdict.exit_status


def table(run: Record) -> Table:
    rows = Table(header_style="bold", caption=CAPTION, caption_justify="left")
    for number, name in enumerate(COLUMNS):
        rows.add_column(name, justify="right" if number else "left", overflow="fold")
    for outage in run.outages:
        rows.add_row(*row(outage, run.begin))
    return rows


def row(outage: Outage, begin: float) -> tuple[str, ...]:
    struck = outage.struck
    return (
        f"{struck.fault}: {struck.target}",
        as_text(max(0.0, struck.began - begin)),
        as_text(struck.ended - struck.began) if struck.ended > struck.began else "-",
        as_text(outage.any_call),
        as_text(outage.any_write),
        as_text(outage.worst_replica),
        f"{outage.unknown:,}",
    )


def page(run: Record) -> str:
    title = f"Cupo load test: faults, {run.topology}, {run.facts.get('started', '')}"
    verdict = record.verdict(run)
    found = run.findings
    longest = max((outage.any_call for outage in run.outages), default=0.0)
    tiles = (
        (f"{run.calls:,}", f"calls in {as_text(run.seconds)}"),
        (f"{found.users:,}", "users, each with a history of its own"),
        (f"{found.unknown:,}", "calls of unknown outcome"),
        (f"{len(run.outages)}", "faults"),
        (as_text(longest), "longest time without a success"),
    )
    rows = [row(outage, run.begin) for outage in run.outages]
    parts = [f"<h1>{elements.safe(title)}</h1>", elements.verdict(verdict), elements.tiles(tiles)]
    parts.append(
        elements.section("After each fault", f"{CAPTION.capitalize()}.", elements.table(COLUMNS, rows))
    )
    parts.append(histories(found.violations[:NAMED_USERS]))
    parts.append(
        elements.section("The run", "The same command and seed ask the same.", elements.facts(run.facts))
    )
    return elements.document(title, parts)
