"""The columns of the comparison, once for the terminal, the README and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadtest.strategies import Need, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtest.compare.measure import Measured, Result


@dataclass(frozen=True)
class Column:
    """A number of both phases together, as text."""

    title: str
    text: Callable[[Measured], str]


def number(value: float) -> str:
    """Whole from ten up, one digit below, with separators; a whole number stays one."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.1f}"


def milliseconds(seconds: float) -> str:
    return number(seconds * 1_000)


COLUMNS = (
    Column("most devices", lambda both: number(both.most_devices)),
    Column("duplicates", lambda both: number(both.duplicates)),
    Column("lost", lambda both: number(both.lost)),
    Column("1213 per 1,000", lambda both: number(both.per_thousand(both.deadlocks))),
    Column("1205 per 1,000", lambda both: number(both.per_thousand(both.lock_waits))),
    Column("retries per 1,000", lambda both: number(both.per_thousand(both.retries))),
    Column("gave up", lambda both: number(both.gave_up)),
    Column("calls/s", lambda both: number(both.calls_per_second)),
    Column("p50 ms", lambda both: milliseconds(both.p50_seconds)),
    Column("p99 ms", lambda both: milliseconds(both.p99_seconds)),
)
NUMBER_TITLES = ("over limit: fresh", "over limit: known", *(column.title for column in COLUMNS))
SERVER_TITLE = "needs also"


def over_limit(result: Result, phase: Phase) -> str:
    measured = result.phases[phase]
    return f"{measured.over_limit} of {measured.users}"


def numbers(result: Result) -> list[str]:
    """One per title; dashes where the strategy was not run."""
    if result.both is None:
        return ["-"] * len(NUMBER_TITLES)
    return [over_limit(result, phase) for phase in Phase] + [column.text(result.both) for column in COLUMNS]


def other_server(result: Result) -> str:
    return "Redis" if result.strategy.needs is Need.REDIS else "nothing"
