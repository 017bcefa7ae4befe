"""The search for an order of one user's calls that respects time and gives each the answer that it got.

Wing and Gong's search ("Testing and verifying concurrent objects", 1993) with Lowe's refinements ("Testing
for linearizability", 2017): a place that was seen is not entered again, and no call is taken sooner than it
has to be. Answers are walked past in the order in which they came. Each call has to be taken by the time of
its answer, after whichever others under way it needs; the rest waits. Four things keep the search short, and
none of them loses an order:

- A call that only looks is taken as soon as what it saw is there: it closes no other way.
- Of calls of unknown outcome that ask the same, the first one sent is taken first: their effects are the
  same, and it could have its own whenever a later one could.
- Where a place was searched in vain, so was each that differs only in that more calls of unknown outcome
  are spent: whatever these might still have done, they might have done there too.
- Before an answer only those calls are taken that cannot as well wait until after it.

What is found is exact. How long that takes has no bound but the one that is set: the question is NP-complete.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from loadtest.linearizability.model import State, footprint, is_told, may_wait, only_looks, step
from loadtest.linearizability.operation import Operation

MOST_STEPS = 3_000_000


class OutOfSteps(Exception):
    """No order was found within the bound on work, and none excluded."""


class Place(NamedTuple):
    """How far an order has come: `behind` answers are walked past, and `state` is where that has led.

    Sets of calls as bits: those `taken` whose answers are still to come, and those of unknown outcome that
    are `spent`.
    """

    behind: int
    taken: int
    spent: int
    state: int


class Stretch(NamedTuple):
    """What may be taken before the next answer and whose answer that is: calls by their numbers."""

    answered: int
    looks: list[int]
    changes: list[int]
    unknown: list[list[int]]  # those that ask the same, in the order in which they were sent


class Search:
    """One search over one user's calls.

    Answers that came after `until` are not looked for: those calls may have had their effect by then or not,
    though not with another answer.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        first: State,
        most_steps: int = MOST_STEPS,
        until: float = math.inf,
    ) -> None:
        self.steps_left = most_steps
        self._operations = operations
        self._stretches = stretches(operations, until)
        self._footprints = [footprint(operation) for operation in operations]
        self._states = [first]
        self._numbers_of_states = {first: 0}
        self._entered = Entered()
        self._after: dict[tuple[int, int], int | None] = {}
        self._waits: dict[tuple[int, int], bool] = {}
        self._looks: dict[tuple[int, int], int] = {}

    def run(self) -> int | None:
        """The number of the answer that no order gets past; None where some order explains them all.

        Of those that do not fit together it is the one that came last. Raises OutOfSteps.
        """
        furthest = 0
        trail = [iter([Place(0, 0, 0, 0)])]
        while trail:
            place = next(trail[-1], None)
            if place is None:
                trail.pop()
            elif place.behind == len(self._stretches):
                return None
            elif self._entered.add(place):
                furthest = max(furthest, place.behind)
                trail.append(self._onwards(place))
        return self._stretches[furthest].answered

    def is_at_start(self, behind: int) -> bool:
        """Whether each order that was searched had the first state again when so many answers were behind."""
        return self._entered.states(behind) == {0}

    def _onwards(self, place: Place) -> Iterator[Place]:
        """The places past the next answer, those first that take the fewest calls before it."""
        stretch = self._stretches[place.behind]
        start = place._replace(taken=place.taken | self._seen(place.behind, place.state))
        if start.taken >> stretch.answered & 1:
            yield _past(start, stretch)
            return
        direct = self._take(start, stretch.answered)
        if direct is not None:
            yield _past(direct, stretch)
        useful = self._useful(start, stretch)
        entered = Entered()
        waiting: deque[tuple[Place, tuple[int, ...]]] = deque([(start, ())])
        while waiting:
            place, chain = waiting.popleft()
            for number in _choices(place, stretch, useful):
                further = self._take(place, number)
                if further is None or not entered.add(further):
                    continue
                if not further.taken >> stretch.answered & 1:
                    waiting.append((further, (*chain, number)))
                elif number != stretch.answered or not self._may_one_wait(start, chain, number, further):
                    yield _past(further, stretch)

    def _useful(self, place: Place, stretch: Stretch) -> set[int]:
        """The calls that may have to be taken before the next answer's, for its sake or for one another's.

        All others can wait: in any order, the last of them can be put off past the useful ones behind it,
        then the last but one, and so on.
        """
        rest = {n for n in (*stretch.looks, *stretch.changes) if not place.taken >> n & 1}
        rest |= {n for group in stretch.unknown for n in group if not place.spent >> n & 1}
        found = [stretch.answered]
        for later in found:
            rest -= set(found)
            found += [earlier for earlier in rest if not self._may_wait(earlier, later)]
        return set(found)

    def _may_one_wait(self, start: Place, chain: tuple[int, ...], last: int, reached: Place) -> bool:
        """Whether one call of the chain could as well be taken after its last: then that way leads on too."""
        for n, put_off in enumerate(chain):
            place: Place | None = start
            for number in (*chain[:n], *chain[n + 1 :], last, put_off):
                place = place and self._take(place, number)
            if place and place.state == reached.state and not reached.taken & ~place.taken:
                return True
        return False

    def _take(self, place: Place, number: int) -> Place | None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise OutOfSteps
        after = self._step(place.state, number)
        if after is None:
            return None
        taken, spent = place.taken | self._seen(place.behind, after), place.spent
        if self._operations[number].unknown:
            return Place(place.behind, taken, spent | 1 << number, after)
        return Place(place.behind, taken | 1 << number, spent, after)

    def _seen(self, behind: int, state: int) -> int:
        """The calls under way that only look and were told what is there now."""
        key = behind, state
        if key not in self._looks:
            looks = self._stretches[behind].looks
            self._looks[key] = sum(1 << n for n in looks if self._step(state, n) is not None)
        return self._looks[key]

    def _step(self, state: int, number: int) -> int | None:
        key = state, number
        if key not in self._after:
            after = step(self._states[state], self._operations[number], self._states[0].limit)
            if after is not None and after not in self._numbers_of_states:
                self._numbers_of_states[after] = len(self._states)
                self._states.append(after)
            self._after[key] = None if after is None else self._numbers_of_states[after]
        return self._after[key]

    def _may_wait(self, earlier: int, later: int) -> bool:
        key = earlier, later
        if key not in self._waits:
            self._waits[key] = may_wait(self._footprints[earlier], self._footprints[later])
        return self._waits[key]


class Entered:
    """The places that need not be entered again."""

    def __init__(self) -> None:
        self._spent: dict[tuple[int, int, int], list[int]] = {}

    def add(self, place: Place) -> bool:
        """Whether it is new: no other was like it with as little spent, or less."""
        before = self._spent.setdefault((place.behind, place.taken, place.state), [])
        for spent in before:
            if not spent & ~place.spent:
                return False
        before.append(place.spent)
        return True

    def states(self, behind: int) -> set[int]:
        return {state for past, _, state in self._spent if past == behind}


def _past(place: Place, stretch: Stretch) -> Place:
    return Place(place.behind + 1, place.taken & ~(1 << stretch.answered), place.spent, place.state)


def _choices(place: Place, stretch: Stretch, useful: set[int]) -> Iterator[int]:
    for number in stretch.changes:
        if number in useful and not place.taken >> number & 1:
            yield number
    for group in stretch.unknown:
        number = next((n for n in group if not place.spent >> n & 1), -1)
        if number in useful:
            yield number


def stretches(operations: Sequence[Operation], until: float) -> list[Stretch]:
    """One for each answer, in the order in which they came. At equal instants calls are sent before others
    are answered: where it is not certain that one was over before the other, they overlap."""
    told = [n for n, operation in enumerate(operations) if is_told(operation)]
    to_be_sent = deque(sorted(told, key=lambda n: operations[n].sent))
    known = (n for n in told if not operations[n].unknown and operations[n].finished <= until)
    answers = sorted(known, key=lambda n: operations[n].finished)
    found: list[Stretch] = []
    under_way: list[int] = []
    unknown: dict[tuple[str, str, str, int | None], list[int]] = {}
    for answered in answers:
        while to_be_sent and operations[to_be_sent[0]].sent <= operations[answered].finished:
            number = to_be_sent.popleft()
            sent = operations[number]
            if sent.unknown:
                unknown.setdefault((sent.kind, sent.device, sent.replaced, sent.limit), []).append(number)
            else:
                under_way.append(number)
        looks = [n for n in under_way if only_looks(operations[n])]
        changes = [n for n in under_way if not only_looks(operations[n])]
        found.append(Stretch(answered, looks, changes, [list(group) for group in unknown.values()]))
        under_way.remove(answered)
    return found
