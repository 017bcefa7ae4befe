"""Parts of a user's history that accuse the whole: what no order explains in them, none explains in it.

Not every selection of calls is such a part. Without a registration that was acknowledged, a truthful list of
the device looks like a lie. What may be left out:

- **what came after the answer that no order gets past**: it is no cause of it;
- **a call that only looked**: it changed nothing;
- **a quota that an answer told beside what it was about**;
- **other devices**, if nothing that is left counts devices. They go out of lists and replacements too: a
  replacement by one of them is a revocation. Registrations that had room beside all others have it without
  them; a 409 was told because of the number, and goes as well. The limit may go too, and what set it: then
  there is always room;
- **the past**, up to an instant at which no answered call was under way and in every order the user had no
  device and the limit of the start. Calls of unknown outcome stay.

Acknowledged changes that are left, and calls of unknown outcome, cannot be taken away one by one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from loadtest.linearizability.model import State, only_looks
from loadtest.linearizability.operation import Operation
from loadtest.linearizability.search import OutOfSteps, Search

NO_LIMIT = 2**31
MOST_STEPS = 200_000


class Part(NamedTuple):
    """Calls as they were made, and how they are to be looked at.

    `until` is the instant of the answer that no order gets past: calls that were still under way may have
    had their effect or not. `devices` None: all, and how many there are matters. `any_limit`: the limit does
    not. `begins_later`: a past is left out.
    """

    operations: tuple[Operation, ...]
    limit: int
    until: float
    devices: frozenset[str] | None = None
    any_limit: bool = False
    begins_later: bool = False

    def views(self) -> Iterator[tuple[Operation, Operation]]:
        """What is left of each call beside the call."""
        for operation in self.operations:
            view = operation if self.devices is None else _on(self.devices, operation)
            if view is None or view.sent > self.until or (self.any_limit and view.kind == "set_limit"):
                continue
            if view.finished <= self.until or not only_looks(view):
                yield operation, view

    def up_to(self, until: float) -> "Part":
        """Without what was sent later, or looked and saw it later, and without what has no view."""
        shorter = self._replace(until=until)
        return shorter._replace(operations=tuple(call for call, _ in shorter.views()))

    def accused(self) -> "Part | None":
        """The calls up to the answer that no order gets past; None if there is an order, or may be one."""
        calls, search = self._search()
        try:
            number = search.run()
        except OutOfSteps:
            return None
        return None if number is None else self.up_to(calls[number].finished)

    @property
    def impossible(self) -> Operation:
        """The call whose answer no order gets past."""
        return next(one for one in self.operations if one.finished == self.until and not one.unknown)

    def without_past(self) -> "Part | None":
        """Without the latest past that leaves a change beside the impossible answer; None if none does."""
        calls, search = self._search()
        try:
            search.run()
        except OutOfSteps:
            return None
        known = sorted((call for call in calls if not call.unknown), key=lambda call: call.finished)
        for count in reversed(range(1, sum(call.finished <= self.until for call in known))):
            rest = known[count:]
            if known[count - 1].finished < min(call.sent for call in rest) and search.is_at_start(count):
                kept = tuple(call for call in calls if call.unknown or call in rest)
                found = self._replace(operations=kept).accused()
                if found is not None and found.has_cause():
                    return found._replace(begins_later=True)
        return None

    def has_cause(self) -> bool:
        """Whether it tells of a change beside the impossible answer: for people, who look for one."""
        views = [view for call, view in self.views() if call != self.impossible]
        return any(not view.unknown and not only_looks(view) for view in views)

    def _search(self) -> tuple[list[Operation], Search]:
        both = list(self.views())
        first = State(frozenset(), NO_LIMIT if self.any_limit else self.limit)
        return [call for call, _ in both], Search([view for _, view in both], first, MOST_STEPS, self.until)


def _on(devices: frozenset[str], call: Operation) -> Operation | None:
    """The call as if there were no other devices, and nobody counted these."""
    call = call._replace(quota=None)
    match call.kind:
        case "list":
            return call._replace(seen=tuple(device for device in call.seen if device in devices))
        case "set_limit":
            return call
        case "revoke" if call.device in devices:
            return call
        case "register" if call.unknown or call.status == 201:
            return _change_on(devices, call)
        case "register" if call.status == 200 and call.device in devices:
            return call
        case "register" if call.status == 404 and {call.device, call.replaced} <= devices:
            return call
    return None


def _change_on(devices: frozenset[str], call: Operation) -> Operation | None:
    if call.device in devices:
        return call if call.replaced in devices else call._replace(replaced="")
    if call.replaced in devices:
        status = 204 if call.status == 201 else call.status
        return call._replace(kind="revoke", device=call.replaced, replaced="", status=status)
    return None
