"""The statements of the audit. Each reads a range of users in the order of an index, and locks nothing.

Their transaction begins with `dialects.see_one_instant`: what a call changes in several tables is then seen
whole or not at all, as it was committed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Table,
    and_,
    case,
    func,
    null,
    select,
    text,
    true,
    union_all,
)

from app.db import Tx
from app.ops.row_lock import NOBODY
from app.quotas.queries import is_alive
from app.tables import device_blocks, devices, events, idempotency_keys, user_quotas
from app.tables import device_registration_locks as locks

ROWS_FETCHED_AT_ONCE = 1000

_TELLING_MORE = ("device.transferred", "quota.changed")


@dataclass(frozen=True, slots=True)
class Users:
    """Those with ids above `after`, up to `until`. None is no bound."""

    after: int | None
    until: int | None

    def of(self, table: Table) -> ColumnElement[bool]:
        lower = true() if self.after is None else table.c.user_id > self.after
        upper = true() if self.until is None else table.c.user_id <= self.until
        return and_(lower, upper)


def next_users(tx: Tx, after: int | None, rows: int, *tables: Table) -> Users:
    """The users from `after` on who together have `rows` rows in one of the tables, and fewer in the others.

    The last of them may have more. SQLite has large ids as their two's complement, so the database compares.
    """
    ends = []
    for table in tables:
        end = select(table.c.user_id).where(Users(after, None).of(table))
        end = end.order_by(table.c.user_id).limit(1).offset(rows - 1)
        ends.append(select(end.subquery(f"end_in_{table.name}").c.user_id))
    every_end = union_all(*ends).subquery("ends")
    return Users(after, tx.execute(select(func.min(every_end.c.user_id))).scalar())


def count_rows(tx: Tx, users: Users, table: Table) -> int:
    return tx.execute(select(func.count()).select_from(table).where(users.of(table))).scalar_one()


def users_above_limit(tx: Tx, users: Users, default_limit: int) -> Sequence[tuple[int, int, int]]:
    """Those with more devices than they may have: user_id, used, limit.

    By the primary key: `devices_by_expiry` would lead through all leases of all users. The own limit is
    looked up once for each user; a join would for each device.
    """
    own = select(user_quotas.c.device_limit).where(user_quotas.c.user_id == devices.c.user_id)
    limit = func.coalesce(own.scalar_subquery(), default_limit)
    counted = (
        select(devices.c.user_id, func.count().label("used"), limit.label("device_limit"))
        .with_hint(devices, "FORCE INDEX (PRIMARY)", "mysql")
        .where(users.of(devices), is_alive())
        .group_by(devices.c.user_id)
        .having(func.count() > limit)
    )
    return [(*row,) for row in tx.execute(counted.order_by(devices.c.user_id))]


def devices_by_user(tx: Tx, users: Users) -> dict[int, set[str]]:
    """All that are there, those too whose lease has run out."""
    found: dict[int, set[str]] = {}
    query = select(devices.c.user_id, devices.c.device_id).where(users.of(devices))
    for user_id, device_id in tx.execute(query.order_by(devices.c.user_id, devices.c.device_id)):
        found.setdefault(user_id, set()).add(device_id)
    return found


def trails(tx: Tx, users: Users) -> Iterator[Row[Any]]:
    """The events of one user after the other, each user's oldest first."""
    return _stream(tx, users.of(events))


def trail_of(tx: Tx, user_id: int) -> Iterator[Row[Any]]:
    return _stream(tx, events.c.user_id == user_id)


def _stream(tx: Tx, whose: ColumnElement[bool]) -> Iterator[Row[Any]]:
    """Reads `events_by_user`. The rows are not kept here: ask nothing else of `tx` before the end."""
    data = case((events.c.type.in_(_TELLING_MORE), events.c.data), else_=null())
    columns = [events.c[name] for name in ("id", "user_id", "occurred_at", "type", "device_id", "actor")]
    query = select(*columns, data.label("data")).where(whose)
    query = query.with_hint(events, "FORCE INDEX (events_by_user)", "mysql")
    query = query.order_by(events.c.user_id, events.c.occurred_at, events.c.id)
    rows: Iterable[Row[Any]] = tx.execute(query, execution_options={"yield_per": ROWS_FETCHED_AT_ONCE})
    yield from rows


def orphan_locks(tx: Tx, users: Users) -> Sequence[int]:
    """Users who have a lock row and nothing else. Looks each up in the other tables, by an index."""
    query = select(locks.c.user_id).where(users.of(locks), locks.c.user_id != NOBODY)
    for other in (devices, user_quotas, device_blocks, events, idempotency_keys):
        query = query.where(~select(other.c.user_id).where(other.c.user_id == locks.c.user_id).exists())
    return tx.execute(query.order_by(locks.c.user_id)).scalars().all()


def estimated_rows(tx: Tx) -> dict[str, int]:
    """By table, as the server's statistics have it; nothing on SQLite, which keeps none."""
    if tx.dialect.name == "sqlite":
        return {}
    query = text(
        "SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
    )
    return {name: rows or 0 for name, rows in tx.execute(query)}
