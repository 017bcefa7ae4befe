"""What a user's answers allow, whatever the order in which overlapping calls took effect.

All that is known of a call is that it took effect at some instant between `sent` and `finished`; of two
calls that overlap, either may have been first. A call without a usable answer (time-out, lost connection,
5xx) may have taken effect at any instant after `sent`, later than the run even, or never. A verdict must
hold for every such order, or it would be a false alarm. Three questions can still be answered exactly or on
the safe side:

**Do the answers about one device fit any order, and lead to the row that is there?** The device is
registered or it is not, and each answer says which it was and what it became:

    201  absent  → present      200  present → present      409  absent → absent
    204  present → absent       404  absent  → absent

`fits` looks for an order that respects time (a call that finished before another was sent comes before it).
It need not try them all. A call that changes nothing (200, 409, 404) and that matches the present state can
be taken at once: taking it closes no other way. Where the state has to change, every call that would do it
does the same, so the one that finished first is taken: in any order that takes another one first, the two
can be exchanged. Calls without an answer have no deadline and need not be taken at all, so they come last,
when nothing else fits.

**Did a user hold more devices at once than the limit?** For certain a device was held from the instant its
201 had arrived until the first instant a revoke of it was sent, be it answered by 204 or not at all.
Counting only these stretches finds a broken limit although later revokes have brought the rows back under
it. A revoke that was finished before the register was sent does not matter.

**Was a device refused although there was room?** A device may have been held from the instant its register
was sent until the instant a 204 had arrived whose call was sent after the register had finished. If even
with all these stretches the user stays below the limit during the whole of a 409's call, no order explains
the 409.
"""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loadtest.client import Sample

REFUSED = "device_limit_reached"


class Span(NamedTuple):
    begin: float
    end: float


class Effect(NamedTuple):
    """One answer as a step of one device: the state that it found and the state that it left."""

    span: Span
    found: bool
    left: bool

    @property
    def changes(self) -> bool:
        return self.found != self.left


def effect(sample: Sample) -> Effect | None:
    """None where the answer says nothing of the device (a list, a refused key, an unknown answer)."""
    span = Span(sample.sent, sample.finished)
    registers = sample.action in ("register", "repeat")
    match sample.status, registers, sample.action == "revoke":
        case 201, True, _:
            return Effect(span, found=False, left=True)
        case 200, True, _:
            return Effect(span, found=True, left=True)
        case 409, True, _ if sample.code == REFUSED:
            return Effect(span, found=False, left=False)
        case 204, _, True:
            return Effect(span, found=True, left=False)
        case 404, _, True:
            return Effect(span, found=False, left=False)
    return None


def spare(sample: Sample) -> Effect | None:
    """What a call without a usable answer may have done, at any time after it was sent."""
    if not sample.uncertain or sample.action == "list":
        return None
    registers = sample.action != "revoke"
    return Effect(Span(sample.sent, math.inf), found=not registers, left=registers)


def fits(samples: Iterable[Sample], present: bool | None) -> bool:
    """Whether some order explains all answers about one device that nobody had before, ending in `present`
    (None: either)."""
    samples = list(samples)
    todo = [step for step in map(effect, samples) if step is not None]
    spares = [step for step in map(spare, samples) if step is not None]
    if (
        present is not None
    ):  # the auditor's look at the row: after all answers, before whatever is still to come
        todo.append(Effect(Span(math.inf, math.inf), found=present, left=present))
    state = False
    while todo:
        horizon = min(step.span.end for step in todo)
        open_now = [step for step in todo if step.span.begin <= horizon and step.found == state]
        if any(not step.changes for step in open_now):
            todo = [s for s in todo if s.changes or s.span.begin > horizon or s.found != state]
            continue
        if open_now:
            step = min(open_now, key=lambda step: step.span.end)
            todo.remove(step)
        else:
            usable = [step for step in spares if step.span.begin <= horizon and step.found == state]
            if not usable:
                return False
            step = usable[0]
            spares.remove(step)
        state = step.left
    return True


def most_held_for_certain(devices: Iterable[Sequence[Sample]]) -> int:
    """How many of one user's devices were held at one instant in every order. One sequence per device."""
    changes: list[tuple[float, int]] = []
    for samples in devices:
        for span in _merged(_certain(samples)):
            changes += [(span.begin, 1), (span.end, -1)]
    # At equal instants ends come first: where it is not certain that they overlap, they do not.
    return max(itertools.accumulate(step for _, step in sorted(changes)), default=0)


def refused_with_room(devices: Iterable[Sequence[Sample]], limit: int) -> list[Sample]:
    """The refusals of one user that no order explains. One sequence of samples per device."""
    changes: list[tuple[float, int]] = []
    refusals: list[Sample] = []
    for samples in devices:
        refusals += [s for s in samples if s.status == 409 and s.code == REFUSED]
        for span in _merged(_possible(samples)):
            changes += [(span.begin, 1), (span.end, -1)]
    changes.sort(key=lambda change: (change[0], -change[1]))  # at equal instants beginnings first
    instants = [at for at, _ in changes]
    held = [0, *itertools.accumulate(step for _, step in changes)]
    return [
        refusal
        for refusal in refusals
        if max(held[bisect_left(instants, refusal.sent) : bisect_right(instants, refusal.finished) + 1])
        < limit
    ]


def _certain(samples: Sequence[Sample]) -> Iterable[Span]:
    revokes = [s for s in samples if s.action == "revoke" and (s.status == 204 or s.uncertain)]
    for sample in samples:
        if sample.status == 201:
            ends = [s.sent for s in revokes if s.uncertain or s.finished >= sample.sent]
            end = min(ends, default=math.inf)
            if end > sample.finished:
                yield Span(sample.finished, end)


def _possible(samples: Sequence[Sample]) -> Iterable[Span]:
    revoked = [s for s in samples if s.action == "revoke" and s.status == 204]
    for sample in samples:
        registers = sample.action in ("register", "repeat")
        if registers and sample.uncertain:
            yield Span(sample.sent, math.inf)
        elif registers and sample.status in (200, 201):
            ends = [s.finished for s in revoked if s.sent > sample.finished]
            yield Span(sample.sent, min(ends, default=math.inf))


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.begin <= merged[-1].end:
            merged[-1] = Span(merged[-1].begin, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged
