"""Fills a database of Cupo with users who have devices already, by statements of the server's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bench.database import NAMES
from bench.plan import SHARES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.plan import Plan
    from tests.servers import Server

    # Those for so many users from the first on, who are counted from 0.
    Statements = Callable[[int, int, Plan], Sequence[str]]

CHUNK = 100_000  # users of one transaction
_READ_ALL = (
    "SELECT COUNT(created_at) FROM device_registration_locks",
    "SELECT COUNT(registered_at) FROM devices",
    "SELECT COUNT(*) FROM devices FORCE INDEX (devices_by_expiry)",
    "SELECT COUNT(*) FROM events FORCE INDEX (events_by_user)",
)


def fill(server: Server, plan: Plan) -> None:
    """Users 1 … `filled_users` with their lock rows, their devices and the event of each registration.

    Read once when it is written: what a server that has been up for a while has
    in its memory is there.
    """
    url = server.url(NAMES["filled"], server.admin_user)
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", pool_size=2)
    rows = ", ".join(f"({number})" for number in range(min(CHUNK, plan.filled_users)))
    try:
        _run(engine, "CREATE TABLE numbers (n INT PRIMARY KEY)", f"INSERT INTO numbers (n) VALUES {rows}")
        with ThreadPoolExecutor(2) as threads:
            kinds: tuple[Statements, ...] = (_locks_and_devices, _events)
            list(threads.map(lambda kind: _write(engine, plan, kind), kinds))
        _run(engine, "DROP TABLE numbers", *_READ_ALL)
    finally:
        engine.dispose()


def _write(engine: sa.Engine, plan: Plan, kind: Statements) -> None:
    for first in range(0, plan.filled_users, CHUNK):
        _run(engine, *kind(first, min(CHUNK, plan.filled_users - first), plan))


def _run(engine: sa.Engine, *statements: str) -> None:
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


_AT = "UTC_TIMESTAMP(6) - INTERVAL (u.n * 7919 + d.n * 86400) MOD 31536000 SECOND"


def _locks_and_devices(first: int, users: int, plan: Plan) -> Sequence[str]:
    locks = f"SELECT {first + 1} + n, 0, UTC_TIMESTAMP(6) FROM numbers WHERE n < {users} ORDER BY n"
    devices = (
        f"SELECT {first + 1} + u.n, CONCAT('dev-', u.n, '-', d.n), {_AT},"
        f" UTC_TIMESTAMP(6) - INTERVAL u.n MOD 86400 SECOND, 1 {_each_device(first, users, plan)}"
    )
    return (
        f"INSERT INTO device_registration_locks (user_id, version, created_at) {locks}",
        f"INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision) {devices}",
    )


def _events(first: int, users: int, plan: Plan) -> Sequence[str]:
    request_id = "CONCAT('0b7e2c4a-1d3f-4a6b-8c9d-', LPAD(u.n, 12, '0'))"
    columns = "user_id, occurred_at, type, device_id, actor, request_id, data, fanned_out"
    events = (
        f"SELECT {first + 1} + u.n, {_AT}, 'device.registered', CONCAT('dev-', u.n, '-', d.n),"
        f" 'api_key:000000000000', {request_id}, '{{}}', 1 {_each_device(first, users, plan)}"
    )
    return (f"INSERT INTO events ({columns}) {events}",)


def _each_device(first: int, users: int, plan: Plan) -> str:
    """Nearly in the order of the primary key: to have it exactly, the server would sort on its disk."""
    user = f"{first} + u.n"
    number = f"{_devices_until(f'{user} + 1', plan)} - {_devices_until(user, plan)}"
    few = f"d.n < {plan.filled_limit}"
    return f"FROM numbers u STRAIGHT_JOIN numbers d ON {few} AND d.n < {number} WHERE u.n < {users}"


def _devices_until(user: str, plan: Plan) -> str:
    """How many devices the users before `user` have together: as SQL."""
    of_six = " ".join(f"WHEN {number} THEN {sum(SHARES[:number])}" for number in range(len(SHARES)))
    tenths = f"(({user}) DIV 6 * {sum(SHARES)} + CASE ({user}) MOD 6 {of_six} END)"
    return f"({plan.filled_devices} * {tenths} DIV {10 * plan.filled_users})"
