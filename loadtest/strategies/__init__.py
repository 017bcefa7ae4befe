"""Ways to guard the limit of devices per user, the wrong ones too: one small file each, one signature.

`register(caller, user_id, device_id, limit) -> Outcome` does one whole registration, commits what it wrote,
and may raise a database error, upon which the caller rolls back and runs it again. Every strategy has
tables of its own. Their devices tables are alike and have no UNIQUE key on purpose: so duplicates show what
the guard alone is worth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from inspect import cleandoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pymysql.connections import Connection
    from pymysql.cursors import Cursor
    from redis import Redis


class Outcome(StrEnum):
    """What a call was told."""

    REGISTERED = "registered"
    KNOWN = "known"
    REFUSED = "refused"
    GAVE_UP = "gave_up"


class Phase(StrEnum):
    """FRESH: nothing is there for the user yet. KNOWN: the row that is locked or counted in is there."""

    FRESH = "fresh"
    KNOWN = "known"


class Need(StrEnum):
    """What the database server alone may not have."""

    NOTHING = ""
    REDIS = "Redis"
    MYISAM = "MyISAM"


class Point(StrEnum):
    """Where a holder can be held up: it has the lock and nothing else, or it has counted and will insert."""

    NOWHERE = ""
    LOCKED = "locked"
    COUNTED = "counted"


class LockLost(Exception):  # a fact, not a fault: the call rolls back and runs again
    """The lease ended or went to another caller; nothing was written."""


class LockBusy(Exception):  # likewise
    """Others held the lease for as long as this caller was ready to wait."""


def go_on(_point: Point, _user_id: int) -> None:
    """The pause of a caller that nothing holds up."""


@dataclass(frozen=True)
class Caller:
    """One client: its connection, the Redis it uses if any, and `pause`, where a run can hold it up."""

    connection: Connection[Cursor]
    redis: Redis | None = None
    pause: Callable[[Point, int], None] = go_on
    patience_seconds: float = 20.0

    def execute(self, sql: str, *values: object) -> int:
        """The number of rows that the statement found or changed."""
        with self.connection.cursor() as cursor:
            return cursor.execute(sql, values)

    def number(self, sql: str, *values: object) -> int | None:
        """The first column of the first row, None where there is no row."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values)
            row = cursor.fetchone()
        return None if row is None else int(row[0])

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


def no_check() -> None:
    """Most strategies have nothing to ask between the count and the insert."""


@dataclass(frozen=True)
class Devices:
    """The devices table of one strategy, and what every strategy guards: look, count, insert."""

    table: str
    known: str = field(init=False)
    count: str = field(init=False)
    insert: str = field(init=False)

    def __post_init__(self) -> None:
        for name, sql in (
            ("known", "SELECT COUNT(*) FROM {} WHERE user_id = %s AND device_id = %s"),
            ("count", "SELECT COUNT(*) FROM {} WHERE user_id = %s"),
            ("insert", "INSERT INTO {} (user_id, device_id) VALUES (%s, %s)"),
        ):
            object.__setattr__(self, name, sql.format(self.table))

    @property
    def ddl(self) -> str:
        return (
            f"CREATE TABLE {self.table} (id BIGINT AUTO_INCREMENT PRIMARY KEY, user_id BIGINT NOT NULL,"
            " device_id VARCHAR(64) NOT NULL, KEY by_user (user_id, device_id)) ENGINE=InnoDB"
        )

    def count_then_insert(
        self,
        caller: Caller,
        user_id: int,
        device_id: str,
        limit: int,
        last_check: Callable[[], None] = no_check,
    ) -> Outcome:
        """Correct only while no other caller does the same for this user: what a strategy has to see to."""
        if caller.number(self.known, user_id, device_id):
            return Outcome.KNOWN
        if (caller.number(self.count, user_id) or 0) >= limit:
            return Outcome.REFUSED
        last_check()
        caller.pause(Point.COUNTED, user_id)
        caller.execute(self.insert, user_id, device_id)
        return Outcome.REGISTERED


@dataclass(frozen=True)
class Strategy:
    """One row of the comparison. `seed` is run once per user (%s); `breaks` says for whom it must break."""

    name: str
    doc: str | None
    devices: Devices
    register: Callable[[Caller, int, str, int], Outcome]
    tables: tuple[str, ...] = ()
    seed: Mapping[Phase, str] = field(default_factory=dict)
    breaks: frozenset[Phase] = frozenset()
    isolation: str = "READ COMMITTED"
    needs: Need = Need.NOTHING
    pause_at: Point = Point.NOWHERE

    @property
    def what(self) -> str:
        """What people do: the first line of the module's docstring."""
        return cleandoc(self.doc or "").partition("\n")[0]

    @property
    def why(self) -> str:
        """Why it holds or breaks: the rest of the docstring, on one line."""
        return " ".join(cleandoc(self.doc or "").partition("\n")[2].split())


BREAKS_FOR_ALL = frozenset(Phase)
BREAKS_FOR_FRESH = frozenset({Phase.FRESH})
