"""What a user is, taken one call at a time: a set of devices under a limit."""

from typing import NamedTuple

from loadtest.linearizability.operation import Operation, Quota


class State(NamedTuple):
    """One user. More devices than the limit are there only after the limit was lowered."""

    devices: frozenset[str]
    limit: int

    @property
    def is_full(self) -> bool:
        return len(self.devices) >= self.limit

    @property
    def quota(self) -> Quota:
        return Quota(len(self.devices), self.limit)


class Outcome(NamedTuple):
    """What a call is told at some state, and the state that it leaves."""

    status: int
    state: State


REFUSALS = {"register": (404, 409), "revoke": (404,)}  # those that are decided by the user's devices


def is_told(operation: Operation) -> bool:
    """Whether its answer says anything of the user: not if it was refused for another reason than the
    user's devices (401, 403, 412, 422, 429), nor if a read had no answer."""
    if operation.unknown:
        return operation.kind not in ("list", "quota")
    if operation.status < 400:
        return operation.status != 0
    return operation.status in REFUSALS.get(operation.kind, ()) and operation.code != "idempotency_key_in_use"


def only_looks(operation: Operation) -> bool:
    """Whether it changed nothing, by its own answer: whatever explains all answers with it does without."""
    if operation.unknown or operation.kind == "set_limit":
        return False
    return operation.kind in ("list", "quota") or operation.status not in (201, 204)


def step(state: State, operation: Operation, first_limit: int) -> State | None:
    """The state after `operation`, or None where it would not have been told what it was.

    One of unknown outcome may have done whatever it does at `state`; None where that is nothing at all.
    """
    status, after = _outcome(state, operation, first_limit)
    if operation.unknown:
        return None if after == state else after
    if status != operation.status or (operation.kind == "list" and not _is_seen(operation, state)):
        return None
    if operation.quota is not None and operation.quota != after.quota:
        return None
    return after


def _is_seen(operation: Operation, state: State) -> bool:
    return len(operation.seen) == len(state.devices) and state.devices.issuperset(operation.seen)


def _outcome(state: State, operation: Operation, first_limit: int) -> Outcome:
    match operation.kind:
        case "register":
            return _register(state, operation.device, operation.replaced)
        case "revoke" if operation.device in state.devices:
            return Outcome(204, state._replace(devices=state.devices - {operation.device}))
        case "revoke":
            return Outcome(404, state)
        case "set_limit":
            limit = first_limit if operation.limit is None else operation.limit
            return Outcome(200, state._replace(limit=limit))
        case "list" | "quota":
            return Outcome(200, state)


def _register(state: State, device: str, replaced: str) -> Outcome:
    if device in state.devices:
        return Outcome(200, state)
    if replaced and replaced not in state.devices:
        return Outcome(404, state)
    kept = state._replace(devices=state.devices - {replaced})
    if kept.is_full:
        return Outcome(409, state)
    return Outcome(201, kept._replace(devices=kept.devices | {device}))


class Footprint(NamedTuple):
    """What a call has to do with, whatever the state: enough to tell which calls keep out of each other's
    way.

    `grows` is how many devices more there are after it, 0 for a replacement; `counts` whether its answer
    told how many there are and may be; `sees` what a list was told.
    """

    names: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    grows: int = 0
    limits: bool = False
    counts: bool = False
    sees: frozenset[str] | None = None


def footprint(operation: Operation) -> Footprint:
    names = frozenset({operation.device, operation.replaced} - {""})
    counts = operation.quota is not None or operation.status == 409
    if operation.kind == "list":
        return Footprint(sees=frozenset(operation.seen))
    if operation.kind == "set_limit":
        return Footprint(limits=True, counts=counts)
    if only_looks(operation):
        return Footprint(names, counts=counts)
    device = frozenset({operation.device})
    if operation.kind == "revoke":
        return Footprint(names, removes=device, grows=-1, counts=counts)
    removes = frozenset({operation.replaced} - {""})
    return Footprint(names, device, removes, grows=1 - len(removes), counts=counts)


def may_wait(earlier: Footprint, later: Footprint) -> bool:
    """Whether `earlier` can as well be taken right after `later` as right before it.

    True only if, from every state at which both get their answers in this order, they do so in the other
    order too, and leave the same state. Where it is False needlessly, that costs time and not truth.
    """
    for one, other in ((earlier, later), (later, earlier)):
        if one.counts and (other.grows or other.limits):
            return False
        if one.limits and (other.limits or other.adds):
            return False
    if later.adds and earlier.grows < 0:  # the room may be what it made
        return False
    if later.sees is not None and (earlier.adds or earlier.removes):
        return not (earlier.adds <= later.sees and earlier.removes.isdisjoint(later.sees))
    if earlier.sees is not None and (later.adds or later.removes):
        return not (later.removes <= earlier.sees and later.adds.isdisjoint(earlier.sees))
    return earlier.names.isdisjoint(later.names)
