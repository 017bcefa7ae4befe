"""Every call on the user that most calls were for, as a bar: who waited, who won, who was refused."""

from collections import Counter
from collections.abc import Sequence

from loadtest.client import Sample
from loadtest.samples import answer_of, as_text
from loadtest.scales import Linear, box, drawing, line, linear_to, text

WIDTH = 960.0
LEFT, RIGHT = 12.0, 948.0
SHOWN_CALLS, SHOWN_WINNERS = 2000, 20
HEIGHT = 720.0
TALLEST_ROW, WINNER_ROW = 14.0, 20.0


def hot_user(samples: Sequence[Sample]) -> int:
    """The one with most calls; of several the lowest."""
    counts = Counter(sample.user for sample in samples)
    return min(counts, key=lambda user: (-counts[user], user))


def shown(samples: Sequence[Sample], user: int) -> list[Sample]:
    """In the order they were sent; of very many the first, and in any case the winners."""
    calls = sorted((s for s in samples if s.user == user), key=lambda s: (s.sent, s.finished))
    return [call for n, call in enumerate(calls) if n < SHOWN_CALLS or call.status == 201]


def timeline(calls: Sequence[Sample]) -> str:
    """Bars from sent to finished: first the winners, each named, then every call in the order of sending."""
    x = linear_to(max(call.finished for call in calls) / 1.05, LEFT, RIGHT, seconds=True)
    winners = sorted((call for call in calls if call.status == 201), key=lambda call: call.finished)
    top = 30.0
    words = [text(LEFT, top, f"{len(winners)} with 201, by when they were answered", "muted over")]
    parts = [_winner(call, x, top + 8 + WINNER_ROW * n) for n, call in enumerate(winners[:SHOWN_WINNERS])]
    top += 30 + WINNER_ROW * min(len(winners), SHOWN_WINNERS)
    words.append(text(LEFT, top, f"All {len(calls):,}, by when they were sent", "muted over"))
    row = min(TALLEST_ROW, HEIGHT / len(calls))
    top += 10
    parts += [_bar(call, x, top + row * n, row) for n, call in enumerate(calls)]
    bottom = top + row * len(calls)
    grid = []
    for value, label in x.ticks():
        grid += [
            line(x(value), 12, x(value), bottom, "grid"),
            text(x(value), bottom + 18, label, "tick", "middle"),
        ]
    if winners:
        last = x(winners[-1].finished)
        parts.append(line(last, 22, last, bottom, "mark p99"))
        told = f"dashed: the last 201 at {as_text(winners[-1].finished)}"
        words.append(text(RIGHT, 14, told, "muted", "end"))
    title = f"{len(calls):,} calls on one user over time; the table below names the winners"
    return drawing(WIDTH, bottom + 26, title, [*grid, *parts, *words])


def _winner(call: Sample, x: Linear, top: float) -> str:
    width = max(x(call.finished) - x(call.sent), 2.0)
    bar = box(x(call.sent), top, width, WINNER_ROW - 6, f"fill {answer_of(call).family}", _told(call))
    label = f"{call.device}, after {as_text(call.finished - call.sent)}"
    side, at = (
        ("end", x(call.sent) - 6) if x(call.finished) > WIDTH * 0.75 else ("start", x(call.finished) + 6)
    )
    if side == "end" and at < WIDTH * 0.25:  # no room on either side: inside the bar
        return bar + text(x(call.sent) + 6, top + 11, label, "small inside")
    return bar + text(at, top + 11, label, "small", side)


def _bar(call: Sample, x: Linear, top: float, row: float) -> str:
    won = call.status == 201
    height = max(row * 0.85, 3.0 if won else 0.6)
    width = max(x(call.finished) - x(call.sent), 1.0)
    place = top + (row - height) / 2
    return box(x(call.sent), place, width, height, f"fill {answer_of(call).family}", _told(call))


def _told(call: Sample) -> str:
    return f"{answer_of(call).label}, sent at {as_text(call.sent)}, took {as_text(call.finished - call.sent)}"
