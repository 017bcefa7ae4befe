"""What differs between MySQL or MariaDB and SQLite, and nothing else: column types, clock, sessions."""

import datetime
import hashlib
import json
import sqlite3
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql.connections
from sqlalchemy import BigInteger, DateTime, Integer, LargeBinary, String, Text, event, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import URL, Connection, Dialect, Engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

from app.settings import Settings
from app.tls import unverified_tls, verified_tls


class UserId(TypeDecorator[int]):
    """1 … 2^64 - 1. SQLite has no unsigned integers: from 2^63 on, it keeps the two's complement."""

    impl = BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql")
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        if value is not None and value >= 2**63 and dialect.name == "sqlite":
            return value - 2**64
        return value

    def process_result_value(self, value: int | None, dialect: Dialect) -> int | None:  # noqa: ARG002 - SQLAlchemy's signature
        return value + 2**64 if value is not None and value < 0 else value


class _Json(TypeDecorator[Any]):
    """JSON as text: MySQL's own JSON type would reorder an object's keys and round its numbers."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return None if value is None else json.loads(value)


class JsonObject(_Json):
    """A dict, or None for NULL."""

    cache_ok = True


class JsonArray(_Json):
    """A list, or None for NULL."""

    cache_ok = True


ASCII_KEY = String(128).with_variant(mysql.VARCHAR(128, charset="ascii", collation="ascii_bin"), "mysql")
INSTANT = DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
DIGEST = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql")
# TEXT ends at 64 KiB, which few devices of large metadata fill.
LONG_TEXT = Text().with_variant(mysql.MEDIUMTEXT(), "mysql")
SERIAL = BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql").with_variant(Integer(), "sqlite")
# Of a row that has such a serial number.
SERIAL_REFERENCE = BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql")
SECRET = LargeBinary(255).with_variant(mysql.VARBINARY(255), "mysql")
COUNTER = BigInteger().with_variant(mysql.BIGINT(unsigned=True), "mysql")


class utc_now(FunctionElement[datetime.datetime]):  # noqa: N801 - reads as the SQL function that it is
    """The database's clock in UTC, to the microsecond, when the statement began."""

    type = INSTANT
    inherit_cache = True


@compiles(utc_now, "mysql")
def _utc_now_on_mysql(*_: Any, **__: Any) -> str:
    return "UTC_TIMESTAMP(6)"


@compiles(utc_now, "sqlite")
def _utc_now_on_sqlite(*_: Any, **__: Any) -> str:
    return "cupo_utc_now(0)"


class seconds_from_now(FunctionElement[datetime.datetime]):  # noqa: N801 - reads as the SQL function that it is
    """The database's clock and so many seconds more; NULL where the number is."""

    type = INSTANT
    inherit_cache = True


@compiles(seconds_from_now, "mysql")
def _seconds_from_now_on_mysql(element: Any, compiler: Any, **options: Any) -> str:
    return f"UTC_TIMESTAMP(6) + INTERVAL {compiler.process(element.clauses, **options)} SECOND"


@compiles(seconds_from_now, "sqlite")
def _seconds_from_now_on_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return f"cupo_utc_now({compiler.process(element.clauses, **options)})"


# Users and their devices as one parameter of a statement, `asked`, made by `asked_devices`. With one
# parameter for each, every length would be a statement of its own, to be made and parsed anew.
_ASKED_TYPES: dict[str, Any] = {"place": Integer, "user_id": UserId, "device_id": ASCII_KEY}
ASKED = {
    "mysql": text(
        "SELECT place, user_id, device_id FROM JSON_TABLE(:asked, '$[*]' COLUMNS ("
        "place FOR ORDINALITY, user_id BIGINT UNSIGNED PATH '$[0]',"
        " device_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]')) AS listed"
    )
    .columns(**_ASKED_TYPES)
    .subquery("asked"),
    "sqlite": text(
        "SELECT key + 1 AS place, json_extract(value, '$[0]') AS user_id,"
        " json_extract(value, '$[1]') AS device_id FROM json_each(:asked)"
    )
    .columns(**_ASKED_TYPES)
    .subquery("asked"),
}


def asked_devices(tx: Connection, asked: Sequence[tuple[int, str]]) -> str:
    """Users and their devices for a statement over ASKED, whose `place` is their order."""
    kept = UserId()
    return json.dumps([(kept.process_bind_param(user, tx.dialect), device) for user, device in asked])


class SessionRefused(Exception):
    """The database gave a session in which the limit would not hold."""


class _Connection(pymysql.connections.Connection):
    """PyMySQL's, which with no TLS option takes TLS where the server offers it, and verifies nothing.

    For that it would read all of the machine's certificates at each connection: 60 ms of processor time that
    no other call of the process can use.
    """

    def _create_ssl_ctx(self, options: Any) -> ssl.SSLContext:
        return super()._create_ssl_ctx(options) if options else unverified_tls()  # type: ignore[misc] # not in the stubs


def connect_arguments(url: URL, settings: Settings, patience_seconds: int) -> dict[str, Any]:
    """`patience_seconds`: how long a statement may go without an answer before its connection is lost."""
    if url.get_backend_name() == "sqlite":
        return {"timeout": settings.lock_wait_seconds}
    tls: dict[str, Any] = {}
    if settings.database_tls_ca_file is not None:
        # PyMySQL then refuses a server that offers none.
        tls["ssl"] = verified_tls(
            settings.database_tls_ca_file,
            settings.database_tls_certificate_file,
            settings.database_tls_key_file,
        )
    return tls | {
        "charset": "utf8mb4",
        "connect_timeout": settings.database_connect_timeout_seconds,
        "read_timeout": patience_seconds,
        "write_timeout": patience_seconds,
    }


def prepare_sessions(engine: Engine, settings: Settings) -> None:
    """See to it that each new connection of `engine` is fit for the lock protocol, or is refused."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_on_sqlite)
        return

    def prepare(connection: Any, record: Any) -> None:
        record.info["multi_writer"] = _prepare_mysql(connection, settings)
        record.info["lock_wait_seconds"] = settings.lock_wait_seconds

    def connect(_dialect: Any, _record: Any, arguments: Any, named_arguments: Any) -> _Connection:
        return _Connection(*arguments, **named_arguments)

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", prepare)


def session_variables(settings: Settings, *, is_mariadb: bool) -> str:
    """The SET statement of a new session.

    READ COMMITTED: a count after the lock must see what the lock's last holder committed; REPEATABLE READ
    would show an older snapshot. `lock_wait_timeout` bounds the wait for a table that ALTER TABLE holds.
    `wait_timeout` and `idle_transaction_timeout` free the lock of a client that hangs while it holds it.
    """
    variables = {
        "transaction_isolation": "'READ-COMMITTED'",
        "innodb_lock_wait_timeout": settings.lock_wait_seconds,
        "lock_wait_timeout": settings.lock_wait_seconds,
        "wait_timeout": settings.idle_connection_seconds,
    }
    if is_mariadb:
        # MariaDB knows the isolation variable by MySQL's name only from 11.1 on.
        variables["tx_isolation"] = variables.pop("transaction_isolation")
        variables["idle_transaction_timeout"] = settings.idle_transaction_seconds
    return "SET " + ", ".join(f"SESSION {name} = {value}" for name, value in variables.items())


READ_BACK = (
    "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation', 'wsrep_on',"
    " 'group_replication_single_primary_mode')"
)


def _prepare_mysql(connection: Any, settings: Settings) -> bool:
    """Set the session up, read back what it says, and return whether other nodes may write as well."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        is_mariadb = "mariadb" in cursor.fetchone()[0].lower()
        cursor.execute(session_variables(settings, is_mariadb=is_mariadb))
        cursor.execute(READ_BACK)
        found = {name.lower(): value.upper() for name, value in cursor.fetchall()}
    connection.commit()
    isolation = found.get("transaction_isolation") or found.get("tx_isolation")
    if isolation != "READ-COMMITTED":
        raise SessionRefused(f"the session's isolation level is {isolation}, not READ-COMMITTED")
    if settings.multi_writer != "auto":
        return settings.multi_writer == "on"
    return found.get("wsrep_on") == "ON" or found.get("group_replication_single_primary_mode") == "OFF"


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so, see _begin_on_sqlite
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a 2xx must outlive a power cut
    connection.create_function("cupo_utc_now", 1, _utc_text)


def _utc_text(more_seconds: int | None) -> str | None:
    if more_seconds is None:
        return None
    instant = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=more_seconds)
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")


def _begin_on_sqlite(connection: Connection) -> None:
    """Take SQLite's write lock at once: it stands in for the row lock, and an upgrade later could fail."""
    read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def fit_lock_wait(connection: Connection, usual_seconds: int, remaining_seconds: float) -> None:
    """Let no lock wait of this session outlast what is left of the call's budget, nor stay shortened after.

    Costs a statement only where the wait must change: near the budget's end, and once afterwards.
    """
    if connection.dialect.name == "sqlite":
        return
    fitting = max(1, min(usual_seconds, int(remaining_seconds)))
    if fitting != connection.info["lock_wait_seconds"]:
        connection.exec_driver_sql(
            f"SET SESSION innodb_lock_wait_timeout = {fitting:d}, SESSION lock_wait_timeout = {fitting:d}"
        )
        connection.info["lock_wait_seconds"] = fitting


def see_one_instant(tx: Connection) -> None:
    """Have all of this transaction read one snapshot, and write nothing. Its first statement; locks nothing.

    For looking only: what a count under the user's lock must see is the newest, which a snapshot hides.
    """
    # Without SESSION it is for the next transaction alone. On SQLite, a transaction is a snapshot already.
    if tx.dialect.name != "sqlite":
        tx.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


@contextmanager
def named_lock(tx: Connection, name: str) -> Iterator[bool]:
    """Hold a lock by name while the block runs; False if another has it (MySQL manual, "Locking Functions").

    It does not wait, and ends with the session at the latest. On SQLite, writers come one by one anyway.
    """
    if tx.dialect.name == "sqlite":
        yield True
        return
    # Such names are the server's, not the database's, and have at most 64 characters.
    own = {"name": hashlib.sha256(f"{tx.engine.url.database}.{name}".encode()).hexdigest()}
    got = tx.execute(text("SELECT GET_LOCK(:name, 0)"), own).scalar() == 1
    try:
        yield got
    finally:
        if got and not tx.invalidated:
            tx.execute(text("SELECT RELEASE_LOCK(:name)"), own)


def database_clock(tx: Connection) -> datetime.datetime:
    """Now, in UTC, by the database."""
    now: datetime.datetime = tx.execute(select(utc_now())).scalar_one()
    return now
