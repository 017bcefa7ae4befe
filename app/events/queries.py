"""The statements about events."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, insert, select, tuple_

from app.db import Tx, uncertain_result
from app.dialects import seconds_from_now
from app.events.schemas import Event
from app.lists import ListOf
from app.origin import IMPORT, Origin
from app.tables import events


@dataclass(frozen=True, slots=True)
class Happened:
    """An event to be written. `at` is the database's clock in the transaction of the change."""

    type: str
    user_id: int
    at: datetime.datetime
    device_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """What a use case gives. `event` is one that its transaction wrote, None where that changed nothing."""

    event: Happened | None


_insert = insert(events)
_COLUMNS = ("user_id", "occurred_at", "type", "device_id", "actor", "reason", "request_id", "data")
_new = ListOf(**{name: events.c[name].type for name in _COLUMNS})
_insert_of_several = {
    # In the order of the list, which their numbers then tell.
    dialect: _insert.from_select(
        _COLUMNS, select(*(rows.c[name] for name in _COLUMNS)).order_by(rows.c.place)
    )
    for dialect, rows in _new.of_dialect.items()
}


def append(tx: Tx, origin: Origin, *happened: Happened) -> None:
    """Write the events of one user, in the order given. They are there if and only if `tx` commits.

    The driver makes one statement of them. SQLAlchemy would take longer to make it than all the rest of a
    large batch, and hold up the other calls of the process.
    """
    if happened:
        rows = (_row(origin, one) for one in happened)
        tx.execute(_insert, [dict(zip(_COLUMNS, row, strict=True)) for row in rows])


def append_of_several(tx: Tx, happened: Sequence[tuple[Origin, Happened]]) -> None:
    """`append` for several calls and users, by one statement."""
    if happened:
        rows = _new.parameter(tx, (_row(origin, one) for origin, one in happened))
        tx.execute(_insert_of_several[tx.dialect.name], rows)


def _row(origin: Origin, one: Happened) -> tuple[Any, ...]:
    """As _COLUMNS has them."""
    about = (one.user_id, one.at, one.type, one.device_id)
    return *about, origin.actor, origin.reason, origin.request_id, one.data


def committed_before(tx: Tx, origin: Origin) -> Any:
    """What this work's earlier run gave, if its COMMIT of unknown outcome did happen; else None.

    It did if and only if its event is there. What it changed proves nothing: between the two runs a rival may
    have undone it, whom a second effect would rob of what was acknowledged, or have made the same change. The
    caller holds the user's lock: so the earlier run has ended, and no other has written at its instant.
    """
    earlier = uncertain_result(tx)
    if earlier is None or earlier.event is None or not _is_written(tx, origin, earlier.event):
        return None
    return earlier


def _is_written(tx: Tx, origin: Origin, one: Happened) -> bool:
    """Reads `events_by_user` at the event's instant."""
    query = select(events.c.id).where(
        events.c.user_id == one.user_id,
        events.c.occurred_at == one.at,
        events.c.type == one.type,
        events.c.device_id.is_not_distinct_from(one.device_id),
        events.c.request_id == origin.request_id,
    )
    return tx.execute(query.limit(1)).first() is not None


def list_events(
    tx: Tx, user_id: int, before: tuple[datetime.datetime, int] | None, limit: int
) -> Sequence[Event]:
    """At most `limit` events, newest first, from `before` on. Reads `events_by_user` backwards."""
    query = select(events).where(events.c.user_id == user_id)
    if before is not None:
        query = query.where(tuple_(events.c.occurred_at, events.c.id) < before)
    page = query.order_by(events.c.occurred_at.desc(), events.c.id.desc()).limit(limit)
    return [
        Event.model_construct(**{name: getattr(row, name) for name in _FIELDS}) for row in tx.execute(page)
    ]


_FIELDS = tuple(Event.model_fields)


def nth_last_registration(tx: Tx, user_id: int, nth: int, within_seconds: int) -> datetime.datetime | None:
    """When the `nth` newest registration of the last `within_seconds` was; None if there are fewer.

    Devices that were imported do not count: their users had them before.
    """
    query = (
        select(events.c.occurred_at)
        .where(
            events.c.user_id == user_id,
            events.c.type == "device.registered",
            events.c.occurred_at > seconds_from_now(-within_seconds),
            events.c.actor != IMPORT,
        )
        .order_by(events.c.occurred_at.desc(), events.c.id.desc())
        .offset(nth - 1)
        .limit(1)
    )
    found: datetime.datetime | None = tx.execute(query).scalar()
    return found


def last_type_of_device(tx: Tx, user_id: int, device_id: str) -> str | None:
    """The type of the newest event about the device. Reads the user's trail backwards until there is one."""
    query = (
        select(events.c.type)
        .where(events.c.user_id == user_id, events.c.device_id == device_id)
        .order_by(events.c.occurred_at.desc(), events.c.id.desc())
        .limit(1)
    )
    found: str | None = tx.execute(query).scalar()
    return found


def oldest_ids(tx: Tx, user_id: int, limit: int) -> list[int]:
    query = select(events.c.id).where(events.c.user_id == user_id).order_by(events.c.id).limit(limit)
    return list(tx.execute(query).scalars())


def delete_events(tx: Tx, ids: list[int]) -> None:
    tx.execute(delete(events).where(events.c.id.in_(ids)))
