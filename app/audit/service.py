"""What the audit looks at, page by page. A page is one transaction, sees one instant and locks nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from app.audit import queries
from app.audit.findings import AboveLimit, Finding, OrphanLock, TrailBroken
from app.audit.trail import Cause, Replay
from app.db import Tx
from app.sessions import see_one_instant
from app.settings import Settings
from app.tables import device_registration_locks as locks
from app.tables import devices, events

ROWS_OF_A_PAGE = 5000


@dataclass(frozen=True, slots=True)
class Page:
    """What was found in so many rows. `until` is the user to go on after; None at the end."""

    found: list[Finding]
    rows: int
    until: int | None


def look_at_limits(tx: Tx, settings: Settings, after: int | None) -> Page:
    """Who is above the limit among the next users, and how they came to be."""
    see_one_instant(tx)
    users = queries.next_users(tx, after, ROWS_OF_A_PAGE, devices)
    above = queries.users_above_limit(tx, users, settings.default_device_limit)
    found = [_above_limit(tx, settings, *row) for row in above]
    return Page(found, queries.count_rows(tx, users, devices), users.until)


def _above_limit(tx: Tx, settings: Settings, user_id: int, used: int, limit: int) -> Finding:
    replay = Replay(user_id, settings)
    for event in queries.trail_of(tx, user_id):
        replay.follow(event)
    rise = replay.rise
    return AboveLimit(
        user_id=user_id,
        cause=rise.cause if rise else Cause.UNTOLD,
        used=used,
        limit=limit,
        since=rise.at if rise else None,
        event_id=rise.event_id if rise else None,
    )


def look_at_trails(tx: Tx, settings: Settings, after: int | None) -> Page:
    """Whether the trails of the next users lead to the devices that are there."""
    see_one_instant(tx)
    users = queries.next_users(tx, after, ROWS_OF_A_PAGE, devices, events)
    there = queries.devices_by_user(tx, users)
    rows = sum(map(len, there.values()))
    found: list[Finding] = []
    for user_id, trail in groupby(queries.trails(tx, users), lambda event: event.user_id):
        replay = Replay(user_id, settings)
        for event in trail:
            replay.follow(event)
            rows += 1
        found += _differences(user_id, there.pop(user_id, set()), replay.devices)
    for user_id, untold in there.items():
        found += _differences(user_id, untold, set())
    return Page(found, rows, users.until)


def _differences(user_id: int, there: set[str], told: set[str]) -> Iterator[Finding]:
    for device_id in sorted(there - told):
        yield TrailBroken(user_id=user_id, finding="device_without_event", device_id=device_id)
    for device_id in sorted(told - there):
        yield TrailBroken(user_id=user_id, finding="event_without_device", device_id=device_id)


def look_at_locks(tx: Tx, _settings: Settings, after: int | None) -> Page:
    """Whose lock row among the next is all that is there of them."""
    see_one_instant(tx)
    users = queries.next_users(tx, after, ROWS_OF_A_PAGE, locks)
    orphans = [OrphanLock(user_id=user_id) for user_id in queries.orphan_locks(tx, users)]
    return Page([*orphans], queries.count_rows(tx, users, locks), users.until)
