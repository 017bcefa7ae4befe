"""The lab's own database: made for one run, audited with SQL, dropped at the end. No other is touched."""

from __future__ import annotations

import ssl
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.constants import ER

from loadtest.errors import BadUse
from loadtest.strategies import Need, Phase, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

SCHEMES = ("mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MARK = "cupo_lab_mark"
LOCK_WAIT_SECONDS = 5
CONNECT_SECONDS = 10
NO_RIGHT = (ER.DBACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.ACCESS_DENIED_ERROR)


@dataclass(frozen=True)
class Address:
    """Where the server is and who asks; `database` is the lab's own."""

    host: str
    port: int
    user: str
    password: str
    unix_socket: str | None = None
    ssl_ca: str | None = None
    database: str | None = None

    @classmethod
    def of(cls, url: str, database: str) -> Address:
        """Of an SQLAlchemy URL, whose own database is left alone: it may be the service's."""
        if not url:
            raise BadUse("name the server with --database-url or CUPO_DATABASE_URL")
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
        except ValueError as wrong:
            raise BadUse(f"--database-url cannot be read: {wrong}") from None
        if parts.scheme not in SCHEMES:
            raise BadUse("--database-url must look like mysql+pymysql://user:password@host:3306/")
        if unquote(parts.path.strip("/")) == database:
            raise BadUse(
                f"--database-url names {database}, which the lab would drop: give it another --lab-database"
            )
        query = parse_qs(parts.query)
        return cls(
            host=parts.hostname or "localhost",
            port=port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            unix_socket=query.get("unix_socket", [None])[0],
            ssl_ca=query.get("ssl_ca", [None])[0],
            database=database,
        )

    def connect(
        self, isolation: str = "READ COMMITTED", lock_wait_seconds: int = LOCK_WAIT_SECONDS
    ) -> Connection[Cursor]:
        """Autocommit off. The caller closes it."""
        connection = pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            unix_socket=self.unix_socket,
            ssl=_tls(self.ssl_ca) if self.ssl_ca else None,
            # Left to itself PyMySQL reads all certificates of the system for every connection, which takes
            # longer than a call; and with no network in between there is nothing to encrypt.
            ssl_disabled=self.host in LOOPBACK or self.unix_socket is not None,
            database=self.database,
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=CONNECT_SECONDS,
        )
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {lock_wait_seconds}")
        return connection


@cache
def _tls(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


@contextmanager
def lab_database(address: Address, callers: int) -> Iterator[Connection[Cursor]]:
    """The lab's database, empty, for as long as the `with` lasts. Raises BadUse where it cannot be had.

    A database of that name which a killed run left is made anew; one that is not the lab's is refused.
    """
    name = address.database
    try:
        connection = replace(address, database=None).connect()
    except pymysql.err.Error as error:
        raise BadUse(f"no database server to work with: {words_of(error)}") from None
    with closing(connection), connection.cursor() as cursor:
        connection.autocommit(True)
        cursor.execute("SELECT GET_LOCK(%s, 0)", (f"lab.{name}",))
        if cursor.fetchone() != (1,):
            raise BadUse(
                f"another run uses {name} on this server: wait for it, or give another --lab-database"
            )
        cursor.execute("SELECT @@max_connections")
        row = cursor.fetchone()
        if row and int(row[0]) < callers + 5:
            raise BadUse(f"--callers {callers} is too many for a server with max_connections = {row[0]}")
        _make(cursor, str(name))
        try:
            connection.select_db(str(name))
            yield connection
        finally:
            # By a connection of its own: an interrupt may have caught the other in the middle of an answer.
            with closing(replace(address, database=None).connect()) as dropping, dropping.cursor() as drop:
                drop.execute(f"DROP DATABASE IF EXISTS `{name}`")


def _make(cursor: Cursor, name: str) -> None:
    cursor.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s LIMIT 1000", (name,)
    )
    tables = [str(row[0]) for row in cursor.fetchall()]
    if tables and MARK not in tables:
        raise BadUse(f"database {name} is there and is not the lab's: give it another --lab-database")
    try:
        if tables:
            cursor.execute(f"DROP DATABASE `{name}`")
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        cursor.execute(f"CREATE TABLE `{name}`.{MARK} (id INT PRIMARY KEY) ENGINE=InnoDB")
    except pymysql.err.Error as error:
        if error.args[0] == ER.DB_CREATE_EXISTS:
            raise BadUse(
                f"database {name} is there and is not the lab's: give it another --lab-database"
            ) from None
        if error.args[0] in NO_RIGHT:
            raise BadUse(
                f"this account may not create and drop the database {name}: {words_of(error)}"
            ) from None
        raise


def words_of(error: Exception) -> str:
    """A driver's error on one line: its number and its text."""
    return " ".join(" ".join(str(part) for part in error.args).split())


def lay_tables(connection: Connection[Cursor], strategy: Strategy) -> None:
    """The strategy's tables, empty."""
    with connection.cursor() as cursor:
        for ddl in (strategy.devices.ddl, *strategy.tables):
            cursor.execute(f"DROP TABLE IF EXISTS {ddl.split()[2]}")
            cursor.execute(ddl)


def seed(connection: Connection[Cursor], strategy: Strategy, phase: Phase, user_ids: range) -> None:
    if phase in strategy.seed:
        with connection.cursor() as cursor:
            cursor.executemany(strategy.seed[phase], [(user_id,) for user_id in user_ids])


@dataclass(frozen=True)
class Audit:
    """What the rows say of one phase, whatever the callers were told."""

    over_limit: int
    most_devices: int
    duplicates: int
    rows: frozenset[tuple[int, str]]


def audit(connection: Connection[Cursor], strategy: Strategy, user_ids: range, limit: int) -> Audit:
    """Over the limit counts different devices: one that is there twice is a duplicate, counted as that."""
    table = strategy.devices.table
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT user_id, device_id, COUNT(*) FROM {table} WHERE user_id BETWEEN %s AND %s"  # noqa: S608  # ours
            " GROUP BY user_id, device_id ORDER BY user_id, device_id",
            (user_ids[0], user_ids[-1]),
        )
        found = cursor.fetchall()
    per_user: dict[int, int] = {}
    for user_id, _device_id, _copies in found:
        per_user[user_id] = per_user.get(user_id, 0) + 1
    return Audit(
        over_limit=sum(devices > limit for devices in per_user.values()),
        most_devices=max(per_user.values(), default=0),
        duplicates=sum(copies - 1 for _user, _device, copies in found),
        rows=frozenset((user_id, device_id) for user_id, device_id, _copies in found),
    )


def server_version(connection: Connection[Cursor]) -> str:
    """Such as `MariaDB 10.11.14` or `MySQL 9.7.4`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        row = cursor.fetchone()
    version = str(row[0]) if row else "?"
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    return f"{kind} {version.partition('-')[0]}"


def lacks(connection: Connection[Cursor], strategy: Strategy) -> str:
    """Why the database cannot run this strategy, empty where it can."""
    if strategy.needs is not Need.MYISAM:
        return ""
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'disabled_storage_engines'")
        row = cursor.fetchone()
        cursor.execute("SELECT support FROM information_schema.engines WHERE engine = 'MyISAM'")
        support = cursor.fetchone()
    disabled = bool(row and "myisam" in str(row[1]).lower())
    return "MyISAM is off here" if disabled or not support or support[0] not in ("YES", "DEFAULT") else ""
