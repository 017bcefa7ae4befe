"""A violation as inline SVG: who asked what when, and which answer cannot be."""

from collections.abc import Iterable, Sequence

from loadtest.linearizability.operation import Operation
from loadtest.linearizability.violation import Violation, asked
from loadtest.samples import Answer
from loadtest.scales import box, drawing, line, text

WIDTH, LEFT, RIGHT = 960.0, 190.0, 944.0
TOP, ROW, BAR = 10.0, 40.0, 14.0
MOST_DRAWN, MOST_TICKS = 40, 10


def draw(violation: Violation) -> str:
    """One bar for each call, by process, from sent to answered; of very many the last.

    Instants stand in their order and not at scale: what matters is which calls overlap, and a call of a
    millisecond would not be seen beside a pause of seconds.
    """
    calls = violation.operations[-MOST_DRAWN:]
    instants = sorted({at for one in calls for at in (one.sent, *([] if one.unknown else [one.finished]))})
    places = {at: LEFT + (RIGHT - LEFT - 40) * n / max(1, len(instants) - 1) for n, at in enumerate(instants)}
    bottom = TOP + ROW * len(calls)
    parts = list(_axis(places, violation.first_sent, bottom))
    process = ""
    for n, one in enumerate(_by_process(calls)):
        y = TOP + ROW * n
        if one.process != process:
            process = one.process
            parts += [line(0, y, RIGHT, y, "axis"), text(0, y + 33, process, "label small")]
        parts += _bar(violation, one, places, y)
    return drawing(WIDTH, bottom + 26, violation.headline, parts)


def _by_process(calls: Sequence[Operation]) -> list[Operation]:
    """Those of one process together, in the order in which they began."""
    begun: dict[str, int] = {}
    for one in calls:
        begun.setdefault(one.process, len(begun))
    return sorted(calls, key=lambda one: (begun[one.process], one.sent))


def _axis(places: dict[float, float], first: float, bottom: float) -> Iterable[str]:
    every = -(-len(places) // MOST_TICKS)
    for n, (at, x) in enumerate(places.items()):
        yield line(x, TOP, x, bottom, "grid")
        if n % every == 0:
            yield text(x, bottom + 18, f"{1000 * (at - first):,.1f} ms", "tick", "middle")


def _bar(violation: Violation, one: Operation, places: dict[float, float], y: float) -> Iterable[str]:
    is_impossible = one == violation.impossible
    begin, end = places[one.sent], RIGHT if one.unknown else places[one.finished]
    words = f"{asked(one)} → {violation.answer(one)}"
    kind = f"fill {Answer(one.kind, one.status, one.code).family}"
    kind += " impossible" if is_impossible else " open" if one.unknown else ""
    yield box(begin, y + 22, max(end - begin, 3.0), BAR, kind, f"{one.process}: {words}")
    label = "label small wrong" if is_impossible else "label small over"
    words = f"✕ {words}" if is_impossible else words
    if begin < (LEFT + RIGHT) / 2:
        yield text(begin, y + 14, words, label)
    else:
        yield text(end, y + 14, words, label, "end")
