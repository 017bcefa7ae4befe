"""Rows by user and age, however the file has them, in little memory."""

import datetime
import heapq
import pickle
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import Self

from app.imports.rows import BadLine, Row

ROWS_IN_MEMORY = 100_000
_LATEST = datetime.datetime(9999, 12, 31)  # noqa: DTZ001 - UTC, as the database has it


class RowsByUser:
    """Takes rows in any order and gives them back by user and, of each user, the oldest first.

    So that a user is locked once, and what passes the limit are the newest devices, wherever in the file they
    are. What does not fit in memory goes, sorted, to temporary files, which are merged in the end.
    """

    def __init__(self) -> None:
        self._files = ExitStack()
        self._runs: list[Iterable[Row]] = []
        self._latest: list[Row] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, row: Row) -> None:
        self._latest.append(row)
        if len(self._latest) == ROWS_IN_MEMORY:
            self._runs.append(self._written(sorted(self._latest, key=_place)))
            self._latest = []

    def __iter__(self) -> Iterator[Row]:
        """All rows that were added. Once only."""
        return heapq.merge(*self._runs, sorted(self._latest, key=_place), key=_place)

    def _written(self, rows: list[Row]) -> Iterable[Row]:
        file = self._files.enter_context(TemporaryFile())  # noqa: SIM115 - __exit__ closes it
        for row in rows:
            pickle.dump(row, file, pickle.HIGHEST_PROTOCOL)
        file.seek(0)
        return (pickle.load(file) for _ in rows)  # noqa: S301 - nobody else can have written it


def _place(row: Row) -> tuple[int, datetime.datetime, int]:
    """A device that registers only now is the youngest. Line numbers make the order total."""
    return row.user_id, row.registered_at or _LATEST, row.line


def without_repeats(rows: Iterable[Row]) -> Iterator[Row | BadLine]:
    """Of the lines about one device, the first in order; each of the others is bad. `rows` are by user."""
    user_id = None
    lines: dict[str, int] = {}
    for row in rows:
        if row.user_id != user_id:
            user_id, lines = row.user_id, {}
        first = lines.setdefault(row.device_id, row.line)
        if first == row.line:
            yield row
        else:
            yield BadLine(row.line, f"device_id: user {user_id} has this device on line {first} already")
