"""What becomes of each device of an import. Each use case is one transaction for a batch of many users."""

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.db import Tx
from app.devices.service import remove_expired
from app.dialects import database_clock
from app.events.queries import Done, committed_before
from app.imports import queries
from app.imports.rows import Row
from app.origin import Origin
from app.settings import Settings


class OverLimit(StrEnum):
    """What to do with devices of the file beyond their user's limit."""

    KEEP = "keep"
    SKIP = "skip"


class Outcome(StrEnum):
    """What became of a device."""

    IMPORTED = "imported"
    KNOWN = "already there"
    OVER_LIMIT = "over the limit"
    BLOCKED = "blocked"
    EXPIRED = "lease run out"


@dataclass(frozen=True, slots=True)
class Decision:
    """A row's outcome, and its user's limit at that time if the outcome depends on it."""

    row: Row
    outcome: Outcome
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Batch(Done):
    """What became of each row, in their order."""

    decisions: list[Decision]


@dataclass(frozen=True, slots=True)
class BatchState:
    """What a batch is decided by, as of `at` by the database's clock."""

    at: datetime.datetime
    used: Mapping[int, int]
    own_limits: Mapping[int, int]
    known: set[queries.Key]
    blocked: set[queries.Key]


def known_rows(tx: Tx, rows: Sequence[Row]) -> set[queries.Key]:
    """The devices of the batch that are there already. Takes no lock: they stay as they are."""
    return queries.known_devices(tx, [row.key for row in rows], database_clock(tx))


def import_rows(
    tx: Tx, settings: Settings, origin: Origin, over_limit: OverLimit, rows: Sequence[Row]
) -> Batch:
    """Register the devices, each if `register` would; what is there stays as it is. Safe to call again.

    `rows` have each device once, and of each user the oldest first. Holds the locks of all their users to the
    end of `tx`: a registration that counts meanwhile must see all of the batch or nothing.
    """
    users = _users_of(rows)
    queries.lock_all(tx, users)
    earlier: Batch | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    state = _state_without_expired(tx, origin, users, rows)
    decisions = decide(settings, over_limit, rows, state)
    new = [one.row for one in decisions if one.outcome is Outcome.IMPORTED]
    queries.insert_devices(tx, origin, state.at, new)
    return Batch(queries.registered(new[0], state.at) if new else None, decisions)


def preview_rows(
    tx: Tx, settings: Settings, over_limit: OverLimit, promised: Mapping[int, int], rows: Sequence[Row]
) -> list[Decision]:
    """What `import_rows` would do now. Takes no lock and writes nothing.

    `promised` are devices of earlier batches, by user, that would be there by then.
    """
    users = _users_of(rows)
    at = database_clock(tx)
    counted = queries.count_devices(tx, users, at)
    used = Counter({user: count.alive for user, count in counted.items()}) + Counter(promised)
    return decide(settings, over_limit, rows, _state(tx, users, rows, at, used))


def decide(
    settings: Settings, over_limit: OverLimit, rows: Sequence[Row], state: BatchState
) -> list[Decision]:
    """What becomes of each row, in the order of `rows`, by the rules of `register`."""
    used = Counter(state.used)
    decisions = []
    for row in rows:
        limit = state.own_limits.get(row.user_id, settings.default_device_limit)
        if row.key in state.blocked:
            outcome = Outcome.BLOCKED
        elif row.key in state.known:
            outcome = Outcome.KNOWN
        elif _has_run_out(row, state.at):
            outcome = Outcome.EXPIRED
        elif used[row.user_id] >= limit and over_limit is OverLimit.SKIP:
            outcome = Outcome.OVER_LIMIT
        else:
            outcome = Outcome.IMPORTED
            used[row.user_id] += 1
        decisions.append(Decision(row, outcome, limit))
    return decisions


def _state_without_expired(tx: Tx, origin: Origin, users: Sequence[int], rows: Sequence[Row]) -> BatchState:
    """The state after what has expired is gone, as in `register`, and for its reason."""
    while True:
        at = database_clock(tx)
        counted = queries.count_devices(tx, users, at)
        expired = [user for user, count in counted.items() if count.alive < count.rows]
        if not expired:
            return _state(tx, users, rows, at, {user: count.rows for user, count in counted.items()})
        for user_id in expired:
            remove_expired(tx, origin, user_id, at)


def _state(
    tx: Tx, users: Sequence[int], rows: Sequence[Row], at: datetime.datetime, used: Mapping[int, int]
) -> BatchState:
    return BatchState(
        at=at,
        used=used,
        own_limits=queries.own_limits(tx, users),
        known=queries.known_devices(tx, [row.key for row in rows], at),
        blocked=queries.blocked_devices(tx, users),
    )


def _users_of(rows: Sequence[Row]) -> list[int]:
    return sorted({row.user_id for row in rows})


def _has_run_out(row: Row, at: datetime.datetime) -> bool:
    end = row.end_of_lease(at)
    return end is not None and end <= at
