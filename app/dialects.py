"""What differs between MySQL or MariaDB and SQLite in statements: column types, clock, lists, named locks."""

import datetime
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import BigInteger, DateTime, Integer, LargeBinary, String, Text, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator


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
