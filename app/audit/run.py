"""The audit from its first page to its last."""

from collections.abc import Callable, Iterator

from app.audit import queries
from app.audit.service import Page, look_at_limits, look_at_locks, look_at_trails
from app.db import Database, Tx
from app.settings import Settings

Look = Callable[[Tx, Settings, int | None], Page]

# By what they read, which the estimate of their rows goes by.
LOOKS: dict[Look, tuple[str, ...]] = {
    look_at_limits: ("devices",),
    look_at_trails: ("devices", "events"),
    look_at_locks: ("device_registration_locks",),
}


def pages(db: Database, settings: Settings, look: Look) -> Iterator[Page]:
    """Page after page to the end of the table, each in a transaction of its own. Raises Unavailable (503)."""
    page = db.transact(look, settings, None, read_only=True)
    yield page
    while page.until is not None:
        page = db.transact(look, settings, page.until, read_only=True)
        yield page


def rows_to_read(db: Database) -> int | None:
    """How many rows the audit will read, by the server's statistics; None where it keeps none."""
    rows = db.transact(queries.estimated_rows, read_only=True)
    return sum(rows.get(table, 0) for tables in LOOKS.values() for table in tables) or None
