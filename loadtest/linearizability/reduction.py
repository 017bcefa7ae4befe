"""A history that no order explains, made as small as it can be told: part.py says what may be left out."""

from collections.abc import Callable

from loadtest.linearizability.model import footprint, may_wait, only_looks
from loadtest.linearizability.operation import Operation
from loadtest.linearizability.part import Part


def smallest(part: Part) -> Part:
    """Of a part that no order explains the least: whatever call may still be left out leaves an order."""
    part = _without_idle(part)
    part = _on_few_devices(part) or part
    for _ in range(2):  # where fewer calls are under way, there are more instants at which the past may end
        part = part.without_past() or part
        part = _without(part, _that_look, _left_out)
        part = _without(part, _with_quota_beside, _without_quota)
    return _without_idle(part)


def _on_few_devices(part: Part) -> Part | None:
    named = {name for one in part.operations for name in (one.device, one.replaced, *one.seen)} - {""}
    tried = (part._replace(devices=frozenset(named), any_limit=yes).accused() for yes in (True, False))
    found = next((one for one in tried if one is not None), None)
    if found is None:
        return None
    alone = (found._replace(devices=frozenset({name})).accused() for name in sorted(named))
    accused = [one for one in alone if one is not None]
    if accused:
        return min(accused, key=lambda one: len(one.operations))
    left = frozenset(named)
    for name in sorted(named):
        fewer = found._replace(devices=left - {name}).accused()
        if fewer is not None:
            found, left = fewer, left - {name}
    return found


def _without(
    part: Part,
    candidates: Callable[[Part], list[Operation]],
    change: Callable[[Operation], tuple[Operation, ...]],
) -> Part:
    """With as many candidates changed as may be: tried by halves, then quarters, and at last one by one.

    One pass over single ones is enough: what was needed among more is needed among fewer.
    """
    size = max(1, len(candidates(part)) // 2)
    while size:
        numbered = candidates(part)
        for begin in reversed(range(0, len(numbered), size)):
            chosen = set(numbered[begin : begin + size])
            changed = (change(one) if one in chosen else (one,) for one in part.operations)
            part = part._replace(operations=tuple(one for some in changed for one in some)).accused() or part
        size //= 2
    return part


def _that_look(part: Part) -> list[Operation]:
    return [call for call, view in part.views() if only_looks(view)]


def _left_out(_: Operation) -> tuple[Operation, ...]:
    return ()


def _with_quota_beside(part: Part) -> list[Operation]:
    return [one for one in part.operations if one.quota is not None and one.kind != "quota"]


def _without_quota(one: Operation) -> tuple[Operation, ...]:
    return (one._replace(quota=None),)


def _without_idle(part: Part) -> Part:
    """Without the calls of unknown outcome that could have done nothing, or nothing that matters."""
    calls = [(call, view.unknown, footprint(view)) for call, view in part.views()]
    added = {name for _, _, print_of in calls for name in print_of.adds}
    needed = [(call, print_of) for call, unknown, print_of in calls if not unknown]
    rest = [(call, print_of) for call, unknown, print_of in calls if unknown and print_of.removes <= added]
    for _, later in needed:
        needed += (useful := [one for one in rest if not may_wait(one[1], later)])
        rest = [one for one in rest if one not in useful]
    kept = {call for call, _ in needed}
    return part._replace(operations=tuple(call for call in part.operations if call in kept))
