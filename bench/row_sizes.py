"""What a row takes on disk, with all of its indexes: by the server's own account of a filled database."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bench.database import NAMES, databases, shared_server
from bench.errors import BadUse
from bench.fill import fill

if TYPE_CHECKING:
    from pathlib import Path

    from bench.plan import Plan
    from tests.servers import Server

TABLES = ("device_registration_locks", "devices", "events")
_SIZE = (
    "SELECT data_length + index_length FROM information_schema.tables"
    " WHERE table_schema = :database AND table_name = :table"
)


@dataclass(frozen=True)
class RowSizes:
    """Bytes of a row, by table, of rows that came in the order of the primary key."""

    database: str
    date: str
    rows: dict[str, int]
    bytes_per_row: dict[str, float]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def measure(plan: Plan, date: str) -> RowSizes:
    """Some seconds for each 100,000 devices. Raises BadUse."""
    with shared_server(plan) as server, databases(server, {"filled"}):
        fill(server, plan)
        return _read(server, date)


def _read(server: Server, date: str) -> RowSizes:
    name = NAMES["filled"]
    engine = sa.create_engine(server.url(name, server.admin_user))
    rows, sizes = {}, {}
    try:
        with engine.connect() as connection:
            for table in TABLES:
                connection.exec_driver_sql(f"ANALYZE TABLE {table}")
                counted = sa.select(sa.func.count()).select_from(sa.table(table))
                rows[table] = connection.execute(counted).scalar_one()
                size = connection.execute(sa.text(_SIZE), {"database": name, "table": table}).scalar_one()
                sizes[table] = round(size / rows[table], 1)
            version = connection.exec_driver_sql("SELECT VERSION()").scalar_one()
    finally:
        engine.dispose()
    return RowSizes(version, date, rows, sizes)


def read(file: Path) -> RowSizes:
    """Raises BadUse where the file is none of ours."""
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return RowSizes(**kept)
    except (OSError, ValueError, TypeError) as error:
        raise BadUse(f"{file} has no sizes of rows: {error}") from None
