"""Looks at what is committed while calls are under way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text


@contextmanager
def watched(auditor: Engine, users: list[int], limit: int) -> Iterator[list[tuple[int, int]]]:
    """Look at the committed counts all the time, and collect each moment when a user is over the limit."""
    over: list[tuple[int, int]] = []
    looks = 0
    done = threading.Event()
    query = text(
        "SELECT user_id, COUNT(*) FROM devices WHERE user_id BETWEEN :first AND :last"
        " GROUP BY user_id HAVING COUNT(*) > :limit"
    )

    def look() -> None:
        nonlocal looks
        with auditor.connect() as connection:
            while not done.is_set():
                rows = connection.execute(query, {"first": min(users), "last": max(users), "limit": limit})
                over.extend((user, count) for user, count in rows)
                looks += 1

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield over
    finally:
        done.set()
        watcher.join()
    assert looks > 100, "the watcher hardly looked"
