"""`python -m bench.scale_page`: the model of docs/scale.md from what is kept, written into the page."""

from __future__ import annotations

import datetime
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from bench import result, row_sizes
from bench.errors import BadUse
from bench.plan import QUICK
from bench.scale import USERS, Assumptions, Measured, Step, measured, step

DOCS = Path(__file__).parent.parent / "docs"
BENCH, ROWS, PAGE = DOCS / "bench.json", DOCS / "row_sizes.json", DOCS / "scale.md"
BEGIN, END = "<!-- by python -m bench.scale_page -->\n", "<!-- end -->\n"
ROWS_PLAN = replace(QUICK, filled_users=300_000, filled_devices=1_000_000, buffer_pool="1G")
EXIT_BAD_USE = 2
ASSUMED = {
    "a user": "has {devices_per_user:g} devices and makes {calls:g} calls a day:"
    " {registrations_per_user_and_day:g} registration (an app that starts, nearly always on a known device),"
    " {heartbeats_per_user_and_day:g} heartbeats, {reads_per_user_and_day:g} read",
    "a call": "of any kind costs what a registration of a new device does, which is too much for most",
    "a device": "is described by {bytes_of_text:g} bytes of text, in its row and in its events",
    "events": "{events_per_user_and_year:g} a user and year (a new device, one that goes for it),"
    " kept for {years_kept:g} years",
    "the peak": "is {peak_factor:g} times the mean, and leaves {idle:.0%} of the processors idle",
    "a page": "of InnoDB is {page_fill:.0%} full, since users come in any order",
    "in memory": "locks, devices, and {events_in_memory:.0%} of the events; the buffer pool is"
    " {memory_for_pool:.0%} of a server's memory",
    "one primary": "has at most {primary_processors} processors, {primary_pool_gb:,.0f} GB of buffer pool,"
    " {primary_disk_gb:,.0f} GB on disk, {primary_connections:,} connections and"
    " {primary_writes_per_second:,.0f} writing transactions a second",
    "copies": "{copies} of each database, itself included; one is made at {copy_mb_per_second:.0f} MB/s",
    "connections": "{pool_size} of each process, {pool_of_groups} for groups, {connection_of_readyz} for"
    " `/readyz`; {workers} workers",
    "prices": "${price_of_processor:g} for a processor and month, ${price_of_memory_gb:g} for a GB of memory,"
    " ${price_of_disk_gb:.2f} for a GB on disk; without traffic, load balancers, proxies and people",
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def scale_page(
    measure_rows: Annotated[
        bool,
        typer.Option("--measure-rows", help="Fill a database and keep what its rows take; half a minute."),
    ] = False,
) -> None:
    """Write the model into docs/scale.md, by docs/bench.json and docs/row_sizes.json."""
    try:
        if measure_rows:
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            ROWS.write_text(row_sizes.measure(ROWS_PLAN, today).to_json(), encoding="utf-8")
        PAGE.write_text(with_model(PAGE.read_text(encoding="utf-8"), model()), encoding="utf-8")
    except BadUse as error:
        typer.echo(f"scale_page: {error}", err=True)
        raise typer.Exit(EXIT_BAD_USE) from None


def with_model(page: str, text: str) -> str:
    """Raises ValueError where the page has no place for it."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"no lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}{text}{END}{after}"


def model() -> str:
    kept = result.read(BENCH)
    known = measured(kept, row_sizes.read(ROWS))
    assumed = Assumptions()
    steps = [step(users, known, assumed) for users in USERS]
    what = f"{kept.date}, {kept.database}, by `{kept.command}`"
    return "\n".join(
        [*_measured_table(known, what), "", *_assumed_table(assumed), "", *_steps_table(steps), ""]
    )


def _measured_table(known: Measured, what: str) -> list[str]:
    rows = known.rows
    alone = f"with a transaction for each call ({known.single_by}, one call at a time)"
    lines = {
        "processor time of a registration, service, 32 at once": f"{known.grouped.service_us:,.0f} µs",
        "… database": f"{known.grouped.database_us:,.0f} µs",
        f"the same {alone}, service": f"{known.single.service_us:,.0f} µs",
        "… alone, database": f"{known.single.database_us:,.0f} µs",
        "memory of a service process": f"{known.process_mb:.0f} MB",
        **{
            f"a row of `{name}`, with its indexes": f"{size:.0f} bytes"
            for name, size in rows.bytes_per_row.items()
        },
    }
    if known.statements_per_second is not None:
        what_it_is = "the bare statements from C, on the machine of the benchmark"
        lines[what_it_is] = f"{known.statements_per_second:,.0f} transactions a second"
    of_rows = f"rows: {rows.date}, {rows.rows['devices']:,} devices that came in order, {rows.database}"
    return [
        f"| measured ({what}; {of_rows}) | |",
        "| --- | ---: |",
        *(f"| {name} | {value} |" for name, value in lines.items()),
    ]


def _assumed_table(assumed: Assumptions) -> list[str]:
    values = asdict(assumed) | {"calls": assumed.calls_per_user_and_day, "idle": 1 - assumed.utilization}
    lines = (f"| {name} | {text.format_map(values)} |" for name, text in ASSUMED.items())
    return ["| assumed | |", "| --- | --- |", *lines]


def _steps_table(steps: list[Step]) -> list[str]:
    nearest = [f"{one.nearest_limit}, {_shown(100 * one.limits[one.nearest_limit])} %" for one in steps]
    lines = {
        "calls a second at the peak": [_shown(one.calls_per_second) for one in steps],
        "events a second at the peak": [_shown(one.events_per_second) for one in steps],
        "service processes": [_shown(one.processes) for one in steps],
        "connections that they open": [_shown(one.connections) for one in steps],
        "one copy on disk, GB": [_shown(one.disk_gb) for one in steps],
        "buffer pools together, GB": [_shown(one.pool_gb) for one in steps],
        "**primaries**": [f"**{one.shards}**" for one in steps],
        "hours to copy one of them": [_shown(one.copy_hours) for one in steps],
        "processors, all copies": [_shown(one.processors) for one in steps],
        "**dollars a month**": [f"**{_shown(one.dollars)}**" for one in steps],
        "nearest limit of one primary, if it had all": nearest,
    }
    return [
        f"| users | {' | '.join(f'{one.users:,}' for one in steps)} |",
        f"| --- |{' ---: |' * len(steps)}",
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in lines.items()),
    ]


def _shown(value: float) -> str:
    """Two digits: no more are meant."""
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


if __name__ == "__main__":
    app()
