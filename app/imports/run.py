"""An import from its first line to its last: reads, sorts, and decides batch by batch."""

import uuid
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from app.db import Database
from app.dialects import database_clock
from app.imports import service
from app.imports.order import RowsByUser, without_repeats
from app.imports.rows import BadLine, Row, read_rows
from app.imports.service import Decision, Outcome, OverLimit
from app.origin import IMPORT, Origin
from app.settings import Settings

# As long as it takes, users of a batch wait for their locks; see also imports.queries.
ROWS_AT_ONCE = 500
ROWS_BETWEEN_REPORTS = 10_000


@dataclass(frozen=True, slots=True)
class Checked:
    """So many lines have been read, and are good; the last one says so as well."""

    rows: int
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """A batch is done: its transaction has committed."""

    decisions: list[Decision]


Step = BadLine | Checked | Decided


@dataclass(frozen=True, slots=True)
class Import:
    """How to import."""

    settings: Settings
    over_limit: OverLimit
    dry_run: bool


def steps(db: Database, plan: Import, file: TextIO) -> Generator[Step]:
    """Import `file`, and tell of each step once it is done; whoever stops asking stops the import there.

    The whole file is checked before the first batch. Each batch is decided for good or not at all, and a
    device that is there stays as it is, so the same file may be imported again, and goes on where it
    stopped. Raises BadFile, Unavailable (503).
    """
    now = db.transact(database_clock, read_only=True)
    with RowsByUser() as good:
        checked = 0
        for found in read_rows(file, now, plan.settings.default_lease_seconds):
            if isinstance(found, BadLine):
                yield found
                continue
            good.add(found)
            checked += 1
            if checked % ROWS_BETWEEN_REPORTS == 0:
                yield Checked(checked)
        yield Checked(checked, is_all=True)
        decide = _Preview(db, plan) if plan.dry_run else _Registration(db, plan)
        for batch in _batches(without_repeats(good)):
            yield batch if isinstance(batch, BadLine) else Decided(decide(batch))


def _batches(rows: Iterable[Row | BadLine]) -> Iterator[list[Row] | BadLine]:
    batch: list[Row] = []
    for row in rows:
        if isinstance(row, BadLine):
            yield row
            continue
        batch.append(row)
        if len(batch) == ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


class _Registration:
    """Decides a batch and writes it. Where all of it is there already, that costs one look and no lock."""

    def __init__(self, db: Database, plan: Import) -> None:
        self._db = db
        self._plan = plan
        self._origin = Origin(IMPORT, str(uuid.uuid4()))

    def __call__(self, rows: Sequence[Row]) -> list[Decision]:
        known = self._db.transact(service.known_rows, rows, read_only=True)
        decisions = [Decision(row, Outcome.KNOWN) for row in rows if row.key in known]
        new = [row for row in rows if row.key not in known]
        if new:
            plan = self._plan
            work = service.import_rows
            batch = self._db.transact(work, plan.settings, self._origin, plan.over_limit, new)
            decisions += batch.decisions
        return decisions


class _Preview:
    """Decides a batch and writes nothing, but remembers it for the next one."""

    def __init__(self, db: Database, plan: Import) -> None:
        self._db = db
        self._plan = plan
        self._promised: Counter[int] = Counter()

    def __call__(self, rows: Sequence[Row]) -> list[Decision]:
        plan = self._plan
        decisions = self._db.transact(
            service.preview_rows, plan.settings, plan.over_limit, self._promised, rows, read_only=True
        )
        # Rows come by user: of the batches before, only the last one's users can be in the next.
        before, self._promised = self._promised, Counter()
        for one in decisions:
            if one.outcome is Outcome.IMPORTED:
                self._promised[one.row.user_id] += 1
        last = rows[-1].user_id
        self._promised[last] += before[last]
        return decisions
