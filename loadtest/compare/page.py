"""The report as one HTML page with plots: no script and nothing from elsewhere, so it opens anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.compare.columns import (
    NUMBER_TITLES,
    SERVER_TITLE,
    milliseconds,
    number,
    numbers,
    other_server,
    over_limit,
)
from loadtest.compare.table import STEP_COLUMNS, STRATEGY_COLUMNS, conclusion, headline
from loadtest.strategies import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loadtest.compare.interleavings import Shown
    from loadtest.compare.measure import Measured, Result
    from loadtest.compare.run import LabReport

TITLE = "Cupo load test: ways to guard the limit, under the same load"
STYLE_SHEETS = (Path(__file__).parents[1] / "page.css", Path(__file__).with_name("page.css"))
SIGNS = {"holds": "✓", "broken": "✕", "unproven": "?"}
WHOLE = 100.0


def page(report: LabReport) -> str:
    """Looks as the report of a race does: the same style sheet, and what a comparison has besides."""
    style = "".join(sheet.read_text(encoding="utf-8") for sheet in STYLE_SHEETS)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{TITLE}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{style}</style></head><body><main><h1>{TITLE}</h1>'
        + _verdict(report)
        + _section("Measured", _strategy_table(report.results))
        + _plots([result for result in report.results if result.both])
        + _section("Why", _reasons(report.results))
        + (_section("Interleavings, step by step", _step_table(report.shown)) if report.shown else "")
        + _section("The run", f"<p>{escape(headline(report))}</p><pre>{escape(report.command)}</pre>")
        + "</main></body></html>\n"
    )


def _verdict(report: LabReport) -> str:
    kind = "broken" if report.surprises else "unproven" if report.interrupted else "holds"
    first, *others = conclusion(report)
    rest = "".join(f"<li>{escape(words)}</li>" for words in others)
    return (
        f'<div class="verdict {kind}" id="verdict" role="status">'
        f"<strong>{SIGNS[kind]} {escape(first)}</strong><ul>{rest}</ul></div>"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def _table(titles: Iterable[str], rows: Iterable[str], kind: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    lines = "".join(rows)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _strategy_table(results: Sequence[Result]) -> str:
    return _table(
        (*STRATEGY_COLUMNS, *NUMBER_TITLES, SERVER_TITLE), (_strategy_row(result) for result in results)
    )


def _strategy_row(result: Result) -> str:
    name = escape(result.strategy.name)
    figures = "".join(f'<td class="n">{escape(text)}</td>' for text in numbers(result))
    return (
        f'<tr><th scope="row"><a href="#{name}">{name}</a></th><td>{escape(result.expected)}</td>'
        f"<td>{_badge(result.observed, surprising=bool(result.surprises))}</td>{figures}"
        f"<td>{escape(other_server(result))}</td></tr>"
    )


def _badge(observed: str, *, surprising: bool) -> str:
    """Told by its mark and its word as well as by its colour."""
    kind = observed.partition(":")[0]
    mark = {"holds": "✓", "breaks": "✕"}.get(kind, "○")
    known = kind if kind in ("holds", "breaks") else "other"
    note = " – not as expected" if surprising else ""  # noqa: RUF001  # a dash between words
    return f'<span class="badge {known}">{mark} {escape(observed + note)}</span>'


@dataclass(frozen=True)
class Series:
    """One bar of each strategy in a plot: how long, and what it says."""

    name: str
    value: Callable[[Result], float]
    text: Callable[[Result], str]


def _of_both(name: str, pick: Callable[[Measured], float], text: Callable[[float], str] = number) -> Series:
    def value(result: Result) -> float:
        return pick(result.both) if result.both else 0.0

    return Series(name, value, lambda result: text(value(result)))


def _over_limit(phase: Phase) -> Series:
    def value(result: Result) -> float:
        return result.phases[phase].over_limit / result.phases[phase].users

    return Series(f"{phase} users", value, lambda result: over_limit(result, phase))


PLOTS = (
    ("Users over the limit", "less is better", tuple(_over_limit(phase) for phase in Phase)),
    ("Duplicates", "rows too many; less is better", (_of_both("duplicates", lambda both: both.duplicates),)),
    (
        "Throughput",
        "calls per second; more is better",
        (_of_both("calls/s", lambda both: both.calls_per_second),),
    ),
    (
        "Deadlocks and retries per 1,000 calls",
        "less is better",
        (
            _of_both("deadlocks (1213)", lambda both: both.per_thousand(both.deadlocks)),
            _of_both("retries", lambda both: both.per_thousand(both.retries)),
        ),
    ),
    (
        "Latency",
        "milliseconds to the final answer, retries included; less is better",
        (
            _of_both("p50", lambda both: both.p50_seconds, milliseconds),
            _of_both("p99", lambda both: both.p99_seconds, milliseconds),
        ),
    ),
)


def _plots(results: Sequence[Result]) -> str:
    plots = "".join(_plot(results, *plot) for plot in PLOTS)
    return _section("Compared", f'<div class="plots">{plots}</div>') if results else ""


def _plot(results: Sequence[Result], title: str, note: str, series: Sequence[Series]) -> str:
    longest = max(one.value(result) for result in results for one in series) or 1.0
    rows = "".join(_bars(result, series, longest) for result in results)
    keys = "".join(f'<li><i class="s{place}"></i>{escape(one.name)}</li>' for place, one in enumerate(series))
    key = f'<ul class="key">{keys}</ul>' if len(series) > 1 else ""
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3><p>{escape(note)}</p>{key}</figcaption>{rows}</figure>"
    )


def _bars(result: Result, series: Sequence[Series], longest: float) -> str:
    bars = "".join(
        f'<span class="bar"><i class="s{place}" style="width:{WHOLE * one.value(result) / longest:.2f}%"></i>'
        f"<b>{escape(one.text(result))}</b></span>"
        for place, one in enumerate(series)
    )
    broken = "" if result.observed == "holds" else '<abbr title="lets users past the limit"> ✕</abbr>'
    name = f'<span class="name">{escape(result.strategy.name)}{broken}</span>'
    return f'<div class="row">{name}<span>{bars}</span></div>'


def _reasons(results: Sequence[Result]) -> str:
    said = "".join(
        f'<dt id="{escape(result.strategy.name)}">{escape(result.strategy.name)}'
        f" {_badge(result.observed, surprising=bool(result.surprises))}</dt>"
        f"<dd><strong>{_coded(result.strategy.what)}</strong> {_coded(result.strategy.why)}</dd>"
        for result in results
    )
    return f'<dl class="why">{said}</dl>'


def _coded(text: str) -> str:
    """Escaped, with what stands between backquotes as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if odd % 2 else part for odd, part in enumerate(parts))


def _step_table(shown: Sequence[Shown]) -> str:
    rows = (
        f'<tr><th scope="row">{escape(one.name)}</th><td>{escape(one.strategy)}</td>'
        f"<td>{escape(one.expected)}</td>"
        f"<td>{_badge(one.observed or 'not run', surprising=bool(one.surprise))}</td>"
        f"<td>{escape(one.seen)}</td></tr>"
        for one in shown
    )
    return _table(STEP_COLUMNS, rows, "steps")
