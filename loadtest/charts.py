"""The plots of a run as inline SVG: no script, nothing to fetch; colours come from the page's style sheet."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.client import Sample
from loadtest.samples import FAMILIES, Answer, answer_of, as_text, by_answer, percentile
from loadtest.scales import Log, Scale, box, circle, drawing, line, linear_to, log_around, path, text

WIDTH = 960.0
RIGHT = WIDTH - 12
SHOWN_ANSWERS = 10
BINS_OF_TIME = 60
BINS_OF_LATENCY = 120
ROW = 46.0
NINES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99)


class Slot(NamedTuple):
    """One stretch of the run: the answers that came in it by family, the latencies of the calls due in it."""

    begin: float
    end: float
    answered: Counter[str]
    latencies: list[float]


def slots(samples: Sequence[Sample]) -> list[Slot]:
    """About sixty of equal length, of a round number of seconds."""
    whole = max((s.finished for s in samples), default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(whole / BINS_OF_TIME))
    length = next(power * f for f in (1, 2, 5, 10) if power * f >= whole / BINS_OF_TIME * 0.999)
    found = [Slot(n * length, (n + 1) * length, Counter(), []) for n in range(int(whole / length) + 1)]
    for sample in samples:
        found[int(sample.finished / length)].answered[answer_of(sample).family] += 1
        found[max(0, int(sample.due / length))].latencies.append(sample.latency)
    return found


def distribution(samples: Sequence[Sample]) -> str:
    """One row per answer on a common logarithmic axis: where its calls lie; lines at p50 and p99."""
    groups = list(by_answer(samples).items())[:SHOWN_ANSWERS]
    left, top = 262.0, 6.0
    bottom = top + ROW * len(groups)
    x = log_around((s.latency for s in samples), left, RIGHT)
    parts = _vertical_grid(x, top, bottom)
    for n, (answer, group) in enumerate(groups):
        parts += _ridge(answer, sorted(s.latency for s in group), x, top + ROW * (n + 1))
    title = "Latency distribution per answer, logarithmic axis; the table gives the figures"
    return drawing(WIDTH, bottom + 26, title, parts)


def _ridge(answer: Answer, latencies: list[float], x: Log, base: float) -> list[str]:
    width = (x.end - x.begin) / BINS_OF_LATENCY
    bins = Counter(min(int((x(value) - x.begin) / width), BINS_OF_LATENCY - 1) for value in latencies)
    p50, p99 = (percentile(latencies, percent) for percent in (50.0, 99.0))
    told = f"{len(latencies):,} calls, p50 {as_text(p50)}, p99 {as_text(p99)}"
    parts = [text(0, base - 20, answer.label, "label"), text(0, base - 4, told, "muted")]
    for place, count in sorted(bins.items()):
        height = max(1.5, (ROW - 12) * count / max(bins.values()))
        parts.append(
            box(x.begin + place * width, base - height, width - 0.6, height, f"fill {answer.family}")
        )
    parts.append(line(x.begin, base, x.end, base, "axis"))
    for value, kind in ((p50, "p50"), (p99, "p99")):
        parts.append(line(x(value), base - ROW + 6, x(value), base, f"mark {kind}"))
    return parts


def percentiles(samples: Sequence[Sample]) -> str:
    """The slowest calls drawn out: every step to the right is ten times rarer."""
    groups = list(by_answer(samples).items())[:SHOWN_ANSWERS]
    left, top, bottom = 74.0, 20.0, 320.0
    nines = [n for n in NINES if n <= 90 or len(samples) >= 1 / (1 - n / 100)]
    last = 1 / (1 - nines[-1] / 100)
    y = log_around((s.latency for s in samples), bottom, top)
    end = WIDTH - 290

    def x(percent: float) -> float:
        return left + (end - left) * math.log(1 / (1 - percent / 100)) / math.log(last)

    parts = _horizontal_grid(y, left, end)
    for percent in nines:
        parts.append(line(x(percent), top, x(percent), bottom, "grid"))
        parts.append(text(x(percent), bottom + 18, f"p{percent:g}" if percent else "min", "tick", "middle"))
    ends: list[tuple[float, str, str]] = []
    kinds: Counter[str] = Counter()
    for answer, group in groups:
        kind = f"curve {answer.family} kind{kinds[answer.family] % 4}"
        kinds[answer.family] += 1
        points = [(x(p), y(value)) for p, value in _curve(group, last)]
        parts += [path(points, kind), circle(*points[-1], 3.5, f"fill {answer.family}")]
        ends.append((points[-1][1], answer.label, kind))
    parts += _end_labels(ends, end + 14, top, bottom)
    return drawing(WIDTH, bottom + 30, "Latency by percentile per answer; the table gives the figures", parts)


def _curve(group: Sequence[Sample], last: float) -> list[tuple[float, float]]:
    """Percents and latencies, evenly over the nines; with n values nothing is known beyond the n-th part,
    where the longest ends the curve."""
    latencies = sorted(sample.latency for sample in group)
    reach = min(last, len(latencies))
    percents = [100 * (1 - reach ** (-n / 80)) for n in range(81)] if reach > 1 else [0.0, 0.0]
    return [*((p, percentile(latencies, p)) for p in percents), (percents[-1], latencies[-1])]


def _end_labels(ends: list[tuple[float, str, str]], x: float, top: float, bottom: float) -> list[str]:
    """Labels beside the curves' ends, pushed apart so that none covers another."""
    parts, free_from = [], top
    ends = sorted(ends)
    for n, (y, label, kind) in enumerate(ends):
        at = min(max(y, free_from), bottom - 17.0 * (len(ends) - n - 1))
        free_from = at + 17
        parts += [line(x, at, x + 26, at, kind), text(x + 32, at + 4, label, "label small")]
    return parts


def answers_over_time(samples: Sequence[Sample], found: Sequence[Slot], rate: float) -> str:
    """Answers per second, stacked by what they meant; `rate` is what was to be sent, 0 for a race."""
    left, top, bottom = 74.0, 24.0, 250.0
    length = found[0].end
    most = max(max(slot.answered.total() for slot in found) / length, rate)
    x = linear_to(found[-1].end / 1.05, left, RIGHT, seconds=True)
    y = linear_to(most, bottom, top)
    parts = _horizontal_grid(y, left, RIGHT) + _bottom_axis(x, bottom)
    for slot in found:
        below = 0.0
        for family in FAMILIES:
            count = slot.answered[family] / length
            if count:
                place, height = y(below + count), y(below) - y(below + count)
                title = f"{as_text(slot.begin)}: {family}, {slot.answered[family]:,} answers"
                width = x(slot.end) - x(slot.begin) - 1
                parts.append(box(x(slot.begin), place, width, height, f"fill {family}", title))
                below += count
    if rate:
        parts.append(line(left, y(rate), RIGHT, y(rate), "mark p99"))
        parts.append(text(RIGHT, 12, f"dashed: {rate:g}/s, the plan after its ramp", "muted", "end"))
    parts.append(text(left, 12, "answers per second", "muted"))
    return drawing(WIDTH, bottom + 34, f"{len(samples):,} answers over time, stacked by kind", parts)


def latency_over_time(found: Sequence[Slot]) -> str:
    """Median and p99 of the calls due in each stretch: a stall shows as a tooth."""
    left, top, bottom = 74.0, 24.0, 250.0
    filled = [slot for slot in found if slot.latencies]
    x = linear_to(found[-1].end / 1.05, left, RIGHT, seconds=True)
    values = [(s, sorted(s.latencies)) for s in filled]
    y = log_around((v for _, latencies in values for v in latencies), bottom, top)
    parts = _horizontal_grid(y, left, RIGHT) + _bottom_axis(x, bottom)
    for percent, kind in ((99.0, "curve dashed"), (50.0, "curve")):
        points = [(x((s.begin + s.end) / 2), y(percentile(latencies, percent))) for s, latencies in values]
        parts.append(path(points, f"{kind} ink"))
        parts += [circle(*point, 2.2, "dot") for point in points]
    parts += [
        line(RIGHT - 190, 12, RIGHT - 166, 12, "curve ink"),
        text(RIGHT - 160, 16, "p50", "label small"),
    ]
    parts += [
        line(RIGHT - 100, 12, RIGHT - 76, 12, "curve dashed ink"),
        text(RIGHT - 70, 16, "p99", "label small"),
    ]
    parts.append(text(left, 12, "latency by the instant the call was due", "muted"))
    return drawing(WIDTH, bottom + 34, "Latency over time, p50 and p99", parts)


def _vertical_grid(x: Scale, top: float, bottom: float) -> list[str]:
    parts = []
    for value, label in x.ticks():
        parts += [
            line(x(value), top, x(value), bottom, "grid"),
            text(x(value), bottom + 18, label, "tick", "middle"),
        ]
    return parts


def _bottom_axis(x: Scale, bottom: float) -> list[str]:
    return [text(x(value), bottom + 18, label, "tick", "middle") for value, label in x.ticks()]


def _horizontal_grid(y: Scale, left: float, right: float) -> list[str]:
    parts = []
    for value, label in y.ticks():
        parts += [
            line(left, y(value), right, y(value), "grid"),
            text(left - 8, y(value) + 4, label, "tick", "end"),
        ]
    return parts
