"""Which endpoints are served next. Pure: it knows what is there, and neither clock nor database."""

import datetime
import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_NEVER = datetime.datetime.min  # noqa: DTZ901 - instants of the database have no zone


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint with something due. `in_flight` counts its claimed deliveries, over all workers."""

    endpoint_id: int
    in_flight: int
    last_served_at: datetime.datetime | None
    oldest_due_at: datetime.datetime


def choose(candidates: Iterable[Candidate], free: int, most_in_flight: int) -> Counter[int]:
    """How many deliveries to claim of each endpoint: `free` at most in all, none beyond `most_in_flight`.

    One after the other goes to the endpoint with the fewest in flight, those just chosen included; among
    equals to the one that was served least recently, then to the one whose delivery has been due for longest.
    How much an endpoint has waiting counts for nothing.
    """
    waiting = [
        (one.in_flight, one.last_served_at or _NEVER, one.oldest_due_at, one.endpoint_id)
        for one in candidates
        if one.in_flight < most_in_flight
    ]
    heapq.heapify(waiting)
    chosen: Counter[int] = Counter()
    while waiting and chosen.total() < free:
        in_flight, served_at, due_at, endpoint_id = waiting[0]
        chosen[endpoint_id] += 1
        if in_flight + 1 < most_in_flight:
            heapq.heapreplace(waiting, (in_flight + 1, served_at, due_at, endpoint_id))
        else:
            heapq.heappop(waiting)
    return chosen
