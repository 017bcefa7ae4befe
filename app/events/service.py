"""Reading the trail."""

import datetime
from collections.abc import Sequence

from app.db import Tx
from app.events import queries
from app.events.schemas import Event


def list_events(
    tx: Tx, user_id: int, before: tuple[datetime.datetime, int] | None, limit: int
) -> Sequence[Event]:
    """Up to `limit` events of the user, newest first. Takes no lock; a stranger has none."""
    return queries.list_events(tx, user_id, before, limit)
