"""What the database's errors mean for a transaction: run it again, drop the connection, or give up."""

import sqlite3
import ssl
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy.exc import DBAPIError

from app.errors import Contention, DatabaseUnavailable, Overloaded, Unavailable
from app.tls import words_of

Kind = Literal["deadlock", "lock_timeout", "lost_connection", "too_many_connections", "unfit", "other"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What a driver's error means: the answer where nothing else helps, and what may help before that."""

    answer: type[Unavailable]
    kind: Kind = "other"
    run_again: bool = False
    is_counted: bool = True  # runs again are bounded by their number, and not by the lock budget alone
    drop_connection: bool = False


BUSY = Failure(Contention, run_again=True)
DEADLOCK = replace(BUSY, kind="deadlock")
LOCK_TIMEOUT = replace(BUSY, kind="lock_timeout")
# A server that restarts takes a second or more: time says when to give up, not how often one asked.
GONE = Failure(DatabaseUnavailable, "lost_connection", run_again=True, is_counted=False, drop_connection=True)
FULL = Failure(Overloaded, "too_many_connections")
UNFIT = Failure(DatabaseUnavailable, "unfit")
# A session keeps the rights on its database that it began with, also after they are granted again.
DENIED = replace(UNFIT, drop_connection=True)

# MySQL 8.4 reference manual, "Server Error Message Reference" and "Client Error Message Reference";
# MariaDB knowledge base, "MariaDB Error Code Reference".
MYSQL_FAILURES: dict[int, Failure] = {
    1020: BUSY,  # record has changed since last read (innodb_snapshot_isolation)
    1062: BUSY,  # duplicate key: a writer that takes no lock was faster; run again, the device is found
    1205: LOCK_TIMEOUT,  # lock wait timeout: only its statement was undone
    1213: DEADLOCK,  # deadlock
    1317: BUSY,  # the statement was killed, the session was not
    1969: BUSY,  # MariaDB: max_statement_time
    3024: BUSY,  # MySQL: max_execution_time
    3101: DEADLOCK,  # Group Replication: lost against another node at certification
    3572: LOCK_TIMEOUT,  # NOWAIT
    1047: GONE,  # Galera: not in the primary component
    1053: GONE,  # server shutdown in progress
    1152: GONE,  # aborted connection
    1180: GONE,  # error during COMMIT
    1184: GONE,  # new aborted connection
    1290: GONE,  # --read-only
    1792: GONE,  # read-only transaction
    1836: GONE,  # read-only mode
    1927: GONE,  # MariaDB: connection was killed
    2002: GONE,  # cannot connect by socket
    2003: GONE,  # cannot connect
    2006: GONE,  # server has gone away
    2013: GONE,  # lost connection during query
    2014: GONE,  # commands out of sync
    2045: GONE,
    2055: GONE,  # lost connection, with the system's reason
    3032: GONE,  # MySQL: offline mode, as of a member that its group has expelled
    3100: GONE,  # Group Replication: the member left in mid-commit
    3797: GONE,  # Group Replication: what was committed before is not applied in time, or the member has left
    4031: GONE,  # MySQL: disconnected by the server because of inactivity
    6400: GONE,  # MySQL from 9 on: offline mode, with the reason
    1040: FULL,  # too many connections
    1203: FULL,  # max_user_connections
    1226: FULL,  # resource limit of the account
    1021: UNFIT,  # disk full
    1030: UNFIT,  # error from the storage engine
    1036: UNFIT,  # table is read only
    1044: DENIED,  # no right to the database
    1045: UNFIT,  # access denied
    1049: UNFIT,  # unknown database
    1054: UNFIT,  # unknown column: the schema is not at head
    1114: UNFIT,  # table is full
    1129: UNFIT,  # host blocked
    1130: UNFIT,  # host not allowed
    1142: DENIED,  # no right to the table
    1143: DENIED,  # no right to the column
    1146: UNFIT,  # no such table: the schema is not at head
    1227: DENIED,  # no right to the statement
    1698: UNFIT,  # access denied, no password
    1820: UNFIT,  # the password must be changed first
    1862: UNFIT,  # the password has expired
    2026: UNFIT,  # TLS is asked for and the server offers none
    3118: UNFIT,  # MySQL: the account is locked
    3159: UNFIT,  # the server wants TLS
    4151: UNFIT,  # MariaDB: the account is locked
}

SQLITE_FAILURES: dict[int, Failure] = {
    sqlite3.SQLITE_BUSY: LOCK_TIMEOUT,
    sqlite3.SQLITE_LOCKED: LOCK_TIMEOUT,
    sqlite3.SQLITE_CANTOPEN: UNFIT,
    sqlite3.SQLITE_CORRUPT: UNFIT,
    sqlite3.SQLITE_FULL: UNFIT,
    sqlite3.SQLITE_IOERR: UNFIT,
    sqlite3.SQLITE_NOTADB: UNFIT,
    sqlite3.SQLITE_PERM: UNFIT,
    sqlite3.SQLITE_READONLY: UNFIT,
}


def failure_of(error: DBAPIError) -> Failure | None:
    """What `error` means for the transaction it came from; None where it is a mistake of our own."""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if "no such table" in str(original):  # plain SQLITE_ERROR has no finer number
            return UNFIT
        return SQLITE_FAILURES.get(code & 0xFF)  # the low byte is the primary result code
    if tls_refusal(original) is not None:
        return UNFIT
    number = number_of(error)
    known = None if number is None else MYSQL_FAILURES.get(number)
    return known or (GONE if error.connection_invalidated else None)


def tls_refusal(original: BaseException | None) -> str | None:
    """Why one side does not trust the other, without names of hosts; None for any other error.

    A handshake that was cut off is such another error: a server that restarts does that too.
    """
    cause = getattr(original, "original_exception", None)  # PyMySQL's, of an error while it connects
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message.partition(",")[0].lower()
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return words_of(cause.reason)
    return None


def is_unanswered(error: DBAPIError) -> bool:
    """Whether no server said it but the driver, which got no answer (numbers 2000 to 2999)."""
    number = number_of(error)
    return number is not None and number // 1000 == 2


def number_of(error: DBAPIError) -> int | None:
    """The server's or the driver's number of the error; of SQLite's, its extended result code."""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", None)
    number = original.args[0] if original is not None and original.args else None
    return number if isinstance(number, int) else None
