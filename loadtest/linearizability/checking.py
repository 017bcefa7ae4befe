"""The verdict on a whole run: each user's calls searched for an order, each failure made small."""

import dataclasses
import math
from collections.abc import Iterable

from loadtest.linearizability.model import State, is_told
from loadtest.linearizability.operation import Operation
from loadtest.linearizability.part import Part
from loadtest.linearizability.reduction import smallest
from loadtest.linearizability.search import MOST_STEPS, OutOfSteps, Search
from loadtest.linearizability.violation import Violation

MOST_REDUCED = 20


@dataclasses.dataclass(frozen=True)
class Checked:
    """`unknown` counts the calls of unknown outcome. `undecided` are users of whom nothing is known: no
    order was found within the bound on work, and none was excluded."""

    users: int
    operations: int
    unknown: int
    violations: tuple[Violation, ...]
    undecided: tuple[int, ...]


def check(operations: Iterable[Operation], limit: int, most_steps: int = MOST_STEPS) -> Checked:
    """Looks at every user, of whom each has no device and may have `limit` at the start.

    The first 20 violations are reduced to what shows them. `most_steps` bounds the work for one user.
    """
    users: dict[int, list[Operation]] = {}
    for operation in operations:
        users.setdefault(operation.user, []).append(operation)
    violations: list[Violation] = []
    undecided: list[int] = []
    for user, told in sorted(users.items()):
        try:
            number = Search(told, State(frozenset(), limit), most_steps).run()
        except OutOfSteps:
            undecided.append(user)
            continue
        if number is not None:
            part = Part(tuple(filter(is_told, told)), limit, math.inf).up_to(told[number].finished)
            part = smallest(part) if len(violations) < MOST_REDUCED else part
            violations.append(Violation(user, part, part.impossible, len(told) - len(part.operations)))
    return Checked(
        users=len(users),
        operations=sum(map(len, users.values())),
        unknown=sum(one.unknown for told in users.values() for one in told),
        violations=tuple(violations),
        undecided=tuple(undecided),
    )
