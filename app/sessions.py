"""What a session of the database must be: its connection, isolation level, time-outs, and lock waits."""

import datetime
import sqlite3
import ssl
from typing import Any

import pymysql.connections
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine

from app.fitness import require_fit_node
from app.settings import Settings
from app.tls import unverified_tls, verified_tls


class SessionRefused(Exception):
    """The database gave a session in which the limit would not hold."""


class _Connection(pymysql.connections.Connection):
    """PyMySQL's, which with no TLS option takes TLS where the server offers it, and verifies nothing.

    For that it would read all of the machine's certificates at each connection: 60 ms of processor time that
    no other call of the process can use.
    """

    def connect(self, sock: Any = None) -> None:
        """Within the time-out of connecting, also where a server accepts and then says nothing."""
        patience: int = self._read_timeout  # type: ignore[has-type] # not in the stubs
        self._read_timeout = self._write_timeout = self.connect_timeout
        try:
            super().connect(sock)
        finally:
            self._read_timeout = self._write_timeout = patience

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
        "connect_timeout": settings.database_connect_timeout_seconds
        or (1 if settings.has_several_nodes else 3),
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
    " 'group_replication_single_primary_mode', 'group_replication_consistency')"
)
# Of a cluster's node: each transaction's first statement waits until the node has applied all that the
# cluster committed before. Else a refusal, which is rolled back and so never certified, could count a device
# that is revoked, and a list could show it. Also with one writer: one that has just taken over may lag.
SEE_ALL_COMMITTED = {
    "wsrep_on": "SET SESSION wsrep_sync_wait = 7",  # SELECT (1), UPDATE and DELETE (2), INSERT (4)
    "group_replication_consistency": "SET SESSION group_replication_consistency = 'BEFORE'",
}


def _prepare_mysql(connection: Any, settings: Settings) -> bool:
    """Set the session up, read back what it says, and return whether other nodes may write as well."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        is_mariadb = "mariadb" in cursor.fetchone()[0].lower()
        cursor.execute(session_variables(settings, is_mariadb=is_mariadb))
        cursor.execute(READ_BACK)
        found = {name.lower(): value.upper() for name, value in cursor.fetchall()}
        for name, statement in SEE_ALL_COMMITTED.items():
            if found.get(name, "OFF") != "OFF":
                cursor.execute(statement)
        if settings.has_several_nodes:
            require_fit_node(cursor, is_mariadb=is_mariadb)
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
