"""The auditor's own look at the rows, with its own SQL and a connection per look.

A database URL is read as the service reads it: `mysql+pymysql://user:password@host:3306/name` (also
`mariadb+pymysql`), or `sqlite:///var/cupo.db`, which is opened read-only.
"""

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
import pymysql.cursors

from loadtest.errors import BadUse

MYSQL_SCHEMES = ("mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql")
# Both read the primary key's range. No LIMIT: the whole is what is audited.
DEVICES = """
    SELECT user_id, device_id FROM devices WHERE user_id BETWEEN %s AND %s
    ORDER BY user_id, device_id, registered_at"""
LOCK_ROWS = "SELECT COUNT(*) FROM device_registration_locks WHERE user_id BETWEEN %s AND %s"
CONNECT_SECONDS = 10
READ_SECONDS = 120
SUPPORTED = "mysql+pymysql://user:password@host:3306/name or sqlite:///file.db"


class Unreadable(Exception):
    """The database did not answer a look; what was looked for is unknown."""


class Cursor(Protocol):
    def execute(self, query: str, args: Any = ..., /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Rows:
    """All rows of a range of users. `devices` has one entry per row, so that a device that is there twice
    shows twice; `lock_rows` is None where the database has no such table."""

    devices: list[tuple[int, str]]
    lock_rows: int | None

    def by_user(self) -> dict[int, list[str]]:
        users: dict[int, list[str]] = {}
        for user, device in self.devices:
            users.setdefault(user, []).append(device)
        return users


@dataclasses.dataclass(frozen=True)
class Database:
    """Where the rows are. `address` names it without its password."""

    url: str

    @property
    def address(self) -> str:
        parts = urlsplit(self.url)
        if parts.scheme == "sqlite":
            return self.url
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 3306}{parts.path}"

    def version(self) -> str:
        """Raises Unreadable."""
        sqlite = urlsplit(self.url).scheme == "sqlite"
        with self._cursor() as cursor:
            cursor.execute("SELECT sqlite_version()" if sqlite else "SELECT VERSION()")
            return f"{'SQLite ' if sqlite else ''}{next(iter(cursor))[0]}"

    def rows(self, first_user: int, last_user: int) -> Rows:
        """Every row of the users from first to last, both included, ordered by user and device.
        Raises Unreadable."""
        with self._cursor() as cursor:
            cursor.execute(self._with_marks(DEVICES), (first_user, last_user))
            devices = [(int(user), _text(device)) for user, device in cursor]
        return Rows(devices, self._lock_rows(first_user, last_user))

    def _lock_rows(self, first_user: int, last_user: int) -> int | None:
        try:
            with self._cursor() as cursor:
                cursor.execute(self._with_marks(LOCK_ROWS), (first_user, last_user))
                return int(next(iter(cursor))[0])
        except Unreadable as error:
            if "device_registration_locks" in str(error):  # the table's name is in both servers' 1146
                return None
            raise

    def _with_marks(self, query: str) -> str:
        return query.replace("%s", "?") if urlsplit(self.url).scheme == "sqlite" else query

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        try:
            connection: Any = self._connect()
            with contextlib.closing(connection), contextlib.closing(connection.cursor()) as cursor:
                yield cursor
        except (pymysql.MySQLError, sqlite3.Error, OSError) as error:
            raise Unreadable(_one_line(error)) from error

    def _connect(self) -> Any:
        parts = urlsplit(self.url)
        if parts.scheme == "sqlite":
            path = Path(sqlite_path(self.url)).absolute()
            return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=READ_SECONDS)
        return pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.lstrip("/")),
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            autocommit=True,
            charset="utf8mb4",
            cursorclass=pymysql.cursors.SSCursor,  # rows as they come: a run may have left a million
            **_driver_options(parts.query),
        )


def open_database(url: str) -> Database:
    """Raises BadUse, in one line, where the URL cannot be read as one."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadUse(f"--database-url cannot be read ({error}): write {SUPPORTED}") from None
    if parts.scheme == "sqlite":
        if not sqlite_path(url):
            raise BadUse("--database-url names no file: a database in memory belongs to the service alone")
        return Database(url)
    if parts.scheme not in MYSQL_SCHEMES or not parts.path.strip("/"):
        raise BadUse(f"--database-url is not understood: write {SUPPORTED}")
    _driver_options(parts.query)
    return Database(url)


def sqlite_path(url: str) -> str:
    """`sqlite:///var/cupo.db` is relative to here, `sqlite:////var/cupo.db` is absolute."""
    path = unquote(urlsplit(url).path)
    return "" if path.strip("/") in ("", ":memory:") else path[1:]


def _driver_options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, values in parse_qs(query).items():
        match name:
            case "unix_socket":
                options["unix_socket"] = values[-1]
            case "ssl_ca":
                options["ssl"] = {"ca": values[-1]}
            case "charset":
                pass  # what is read is ASCII
            case _:
                raise BadUse(f"--database-url: {name} is not supported, use unix_socket or ssl_ca")
    return options


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _one_line(error: Exception) -> str:
    code_and_text = error.args if len(error.args) == 2 else (None, str(error))
    code, text = code_and_text
    return " ".join(f"{text} ({code})".split()) if code else " ".join(str(text).split())
