"""The report as one HTML file that needs nothing else: no script, no font, no network."""

from collections.abc import Iterable, Sequence

from loadtest import charts, elements, timeline
from loadtest.client import Sample
from loadtest.linearizability import Violation, draw
from loadtest.record import Record, Verdict
from loadtest.samples import FAMILIES, PERCENTILES, answer_of, as_text, figures, figures_of_all, percentile

MEANINGS = {
    "won": "registered (201)",
    "refused": "refused (409)",
    "done": "other success (200, 204)",
    "other": "other answer (404 and the like)",
    "failed": "no usable answer (5xx, lost)",
}
SHOWN_VIOLATIONS, SHOWN_CALLS = 200, 100


def page(run: Record, samples: list[Sample], verdict: Verdict) -> str:
    parts = [_head(run, verdict), _tiles(run, samples), _violations(run)]
    if samples:
        parts += [_latencies(samples), _over_time(run, samples)]
        if run.kind == "race":
            parts.append(_timeline(samples))
    parts.append(_facts(run))
    return elements.document(f"{verdict.headline} ({run.kind})", parts)


def _head(run: Record, verdict: Verdict) -> str:
    title = f"Cupo load test: {run.kind}, {run.facts.get('started', '')}"
    return f"<h1>{elements.safe(title)}</h1>{elements.verdict(verdict)}"


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
    return elements.tiles(tiles)


def _violations(run: Record) -> str:
    violations = run.audit.violations
    if not violations:
        return ""
    rows = [(v.kind.replace("_", " "), str(v.user), v.detail) for v in violations[:SHOWN_VIOLATIONS]]
    note = f"{len(violations):,} in all, {len(rows):,} shown; run.json has every one."
    return elements.section("Violations", note, elements.table(("what", "user", "detail"), rows, "words"))


def histories(violations: Iterable[Violation]) -> str:
    """The section on answers that no order of the calls explains; nothing where there are none."""
    note = (
        "Each bar is one call, from sent to answered; instants stand in their order and not at scale. Of "
        "calls that overlap either may have been first. The dashed ones have no answer: they may have had "
        "their effect at any later time, or never."
    )
    body = "".join(
        f"<pre>{elements.safe(str(one))}</pre>{elements.figure(f'user{one.user}', draw(one))}"
        for one in violations
    )
    return elements.section("What no order explains", note, body) if body else ""


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
    table = elements.table(head, rows, "figures")
    plots = (
        f"{_key(samples)}{elements.figure('distribution', charts.distribution(samples))}"
        f"<h3>How slow are the slowest?</h3>{elements.figure('percentiles', charts.percentiles(samples))}"
    )
    return elements.section("Latency per answer", note, table + plots)


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
        + elements.figure("answers", charts.answers_over_time(samples, found, run.rate))
        + elements.figure("latency", charts.latency_over_time(found))
    )
    return elements.section("Over time", note, plots + elements.details(elements.table(head, rows)))


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
    table = elements.table(("answer", "device", "sent", "answered", "took"), rows)
    shown = f"As a table, winners first, then by answer ({len(rows):,} of {whole:,})"
    body = (
        _key(calls) + elements.figure("timeline", timeline.timeline(calls)) + elements.details(table, shown)
    )
    return elements.section("Who waited, who won, who was refused", note, body)


def _facts(run: Record) -> str:
    return elements.section(
        "The run", "The same command and seed repeat the same calls.", elements.facts(run.facts)
    )


def _key(samples: Sequence[Sample]) -> str:
    """What the colours mean; only those that occur."""
    seen = {answer_of(sample).family for sample in samples}
    entries = "".join(
        f'<li><i class="{family}"></i>{elements.safe(MEANINGS[family])}</li>'
        for family in FAMILIES
        if family in seen
    )
    return f'<ul class="key">{entries}</ul>'
