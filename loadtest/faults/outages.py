"""How long nobody was served after each fault."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from loadtest.faults.nemesis import Struck
from loadtest.linearizability import Operation


@dataclasses.dataclass(frozen=True)
class Outage:
    """Between a fault and the next one, the longest time in seconds without a success: of all calls, of the
    writes, and of the calls through the replica that fared worst; and how many calls were of unknown
    outcome."""

    struck: Struck
    any_call: float
    any_write: float
    worst_replica: float
    unknown: int


def outages(struck: Sequence[Struck], operations: Sequence[Operation]) -> list[Outage]:
    """One for each fault, in the order in which they came."""
    ordered = sorted(struck, key=lambda one: one.began)
    if not ordered:
        return []
    ends_at = max((operation.finished for operation in operations), default=ordered[-1].began)
    following = [*(one.began for one in ordered[1:]), max(ends_at, ordered[-1].began)]
    return [_outage(one, until, operations) for one, until in zip(ordered, following, strict=True)]


def _outage(struck: Struck, until: float, operations: Iterable[Operation]) -> Outage:
    within = [one for one in operations if struck.began <= one.finished <= until]
    served = [one for one in within if is_success(one)]
    by_replica: dict[str, list[Operation]] = {replica_of(one): [] for one in within}
    for one in served:
        by_replica[replica_of(one)].append(one)
    return Outage(
        struck,
        longest_gap(struck.began, served, until),
        longest_gap(struck.began, (one for one in served if is_write(one)), until),
        max((longest_gap(struck.began, ones, until) for ones in by_replica.values()), default=0.0),
        sum(one.unknown for one in within),
    )


def longest_gap(begin: float, served: Iterable[Operation], end: float) -> float:
    instants = [begin, *sorted(one.finished for one in served), end]
    return max(later - earlier for earlier, later in itertools.pairwise(instants))


def is_success(operation: Operation) -> bool:
    """Answered by the service, and not to say that it cannot: a refusal at the limit is an answer too."""
    return 200 <= operation.status < 500


def is_write(operation: Operation) -> bool:
    return operation.kind in ("register", "revoke", "set_limit") and 200 <= operation.status < 300


def replica_of(operation: Operation) -> str:
    """A client's process is named after its replica."""
    return operation.process.partition(",")[0]
