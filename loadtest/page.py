"""The report as one HTML file that needs nothing else: no script, no font, no network."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from loadtest import charts, timeline
from loadtest.client import Sample
from loadtest.record import Record, State, Verdict
from loadtest.samples import FAMILIES, PERCENTILES, answer_of, as_text, figures, figures_of_all, percentile

SIGNS: dict[State, str] = {"holds": "✓", "broken": "✕", "unproven": "?"}
MEANINGS = {
    "won": "registered (201)",
    "refused": "refused (409)",
    "done": "other success (200, 204)",
    "other": "other answer (404 and the like)",
    "failed": "no usable answer (5xx, lost)",
}
SHOWN_VIOLATIONS, SHOWN_CALLS = 200, 100


def page(run: Record, samples: list[Sample], verdict: Verdict) -> str:
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    parts = [_head(run, verdict), _tiles(run, samples), _violations(run)]
    if samples:
        parts += [_latencies(samples), _over_time(run, samples)]
        if run.kind == "race":
            parts.append(_timeline(samples))
    parts.append(_facts(run))
    title = _safe(f"{verdict.headline} ({run.kind})")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="icon" href="data:,"><style>{style}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _head(run: Record, verdict: Verdict) -> str:
    reasons = "".join(f"<li>{_safe(reason)}</li>" for reason in verdict.reasons)
    return (
        f"<h1>Cupo load test: {run.kind}, {_safe(run.facts.get('started', ''))}</h1>"
        f'<div class="verdict {verdict.state}" id="verdict" role="status">'
        f"<strong>{SIGNS[verdict.state]} {_safe(verdict.headline)}</strong><ul>{reasons}</ul></div>"
    )


def _tiles(run: Record, samples: list[Sample]) -> str:
    latencies = sorted(sample.latency for sample in samples)
    tiles = [(f"{len(samples):,}", f"calls in {as_text(run.seconds)}")]
    if run.kind == "steady":
        tiles.append((f"{run.sent_of_planned:.2%}", "sent on schedule"))
    elif run.seconds:
        tiles.append((f"{len(samples) / run.seconds:,.0f}/s", "answered"))
    tiles += [(as_text(percentile(latencies, p)), f"p{p:g} latency") for p in (50.0, 99.0)]
    tiles.append((f"{run.audit.fullest} of {run.limit}", "devices, fullest user"))
    tiles.append((f"{run.audit.uncertain:,}", "calls without a usable answer"))
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{_safe(big)}</b><span>{_safe(small)}</span></div>' for big, small in tiles
        )
        + "</div>"
    )


def _violations(run: Record) -> str:
    violations = run.audit.violations
    if not violations:
        return ""
    rows = [(v.kind.replace("_", " "), str(v.user), v.detail) for v in violations[:SHOWN_VIOLATIONS]]
    note = f"{len(violations):,} in all, {len(rows):,} shown; run.json has every one."
    return _section("Violations", note, _table(("what", "user", "detail"), rows, "words"))


def _latencies(samples: list[Sample]) -> str:
    note = (
        "From the instant each call was due: a call kept waiting by the ones before it shows the wait. "
        "In the first plot the solid line is p50, the dashed one p99."
    )
    rows = []
    for line in [*figures(samples), figures_of_all(samples)]:
        latencies = [as_text(seconds) for seconds in (*line.percentiles, line.longest)]
        rows.append((line.answer.label, f"{line.calls:,}", *latencies))
    head = ("answer", "calls", *(f"p{percent:g}" for percent in PERCENTILES), "max")
    table = _table(head, rows, "figures")
    plots = (
        f"{_key(samples)}{_figure('distribution', charts.distribution(samples))}"
        f"<h3>How slow are the slowest?</h3>{_figure('percentiles', charts.percentiles(samples))}"
    )
    return _section("Latency per answer", note, table + plots)


def _over_time(run: Record, samples: list[Sample]) -> str:
    found = charts.slots(samples)
    note = "Every bar is one stretch of time, by when the answers came."
    rows = [
        (
            as_text(slot.begin) if slot.begin else "0",
            *(f"{slot.answered[family]:,}" for family in FAMILIES),
            *(
                as_text(percentile(sorted(slot.latencies), p)) if slot.latencies else "-"
                for p in (50.0, 99.0)
            ),
        )
        for slot in found
    ]
    head = ("from", *(MEANINGS[family].split(" (")[0] for family in FAMILIES), "p50", "p99")
    plots = (
        _key(samples)
        + _figure("answers", charts.answers_over_time(samples, found, run.rate))
        + _figure("latency", charts.latency_over_time(found))
    )
    return _section("Over time", note, plots + _details(_table(head, rows)))


def _timeline(samples: list[Sample]) -> str:
    user = timeline.hot_user(samples)
    calls = timeline.shown(samples, user)
    whole = sum(sample.user == user for sample in samples)
    won = sum(call.status == 201 for call in calls)
    part = "" if len(calls) == whole else f" The first {timeline.SHOWN_CALLS:,} and every winner are shown."
    note = (
        f"User {user}: {whole:,} calls, {won} won. Each bar is one call, from sent to answered: "
        f"its length is the wait.{part}"
    )
    ordered = sorted(calls, key=lambda call: (call.status != 201, call.finished))[:SHOWN_CALLS]
    rows = [
        (
            answer_of(call).label,
            call.device,
            as_text(call.sent),
            as_text(call.finished),
            as_text(call.latency),
        )
        for call in ordered
    ]
    table = _table(("answer", "device", "sent", "answered", "took"), rows)
    shown = f"As a table, winners first, then by answer ({len(rows):,} of {whole:,})"
    body = _key(calls) + _figure("timeline", timeline.timeline(calls)) + _details(table, shown)
    return _section("Who waited, who won, who was refused", note, body)


def _facts(run: Record) -> str:
    entries = ""
    for name, value in run.facts.items():
        told = f"<code>{_safe(value)}</code>" if name == "command" else _safe(value)
        entries += f"<dt>{_safe(name)}</dt><dd>{told}</dd>"
    return _section("The run", "The same command and seed repeat the same calls.", f"<dl>{entries}</dl>")


def _section(title: str, note: str, body: str) -> str:
    return f'<section><h2>{_safe(title)}</h2><p class="note">{_safe(note)}</p>{body}</section>'


def _figure(name: str, drawing: str) -> str:
    return f'<figure class="scroll plot" id="{name}">{drawing}</figure>'


def _details(table: str, words: str = "As a table") -> str:
    return f"<details><summary>{_safe(words)}</summary>{table}</details>"


def _key(samples: Sequence[Sample]) -> str:
    """What the colours mean; only those that occur."""
    seen = {answer_of(sample).family for sample in samples}
    entries = "".join(
        f'<li><i class="{family}"></i>{_safe(MEANINGS[family])}</li>' for family in FAMILIES if family in seen
    )
    return f'<ul class="key">{entries}</ul>'


def _table(head: Iterable[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    top = "".join(f'<th scope="col">{_safe(cell)}</th>' for cell in head)
    lines = []
    for row in rows:
        mark = ' class="all"' if row[0] == "all calls" else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>")
    body = f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table class="{kind}">{body}</table></div>'


def _safe(words: str) -> str:
    return html.escape(words)
