"""What must hold of the database: all of it for `cupo doctor`, the cheap part for `/readyz`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app import migrations
from app.embedded import has_root_key
from app.failures import number_of
from app.fitness import cluster_of, unfitness
from app.ops.account import encryption, is_on_this_machine, needless_rights
from app.ops.reasons import reason_of
from app.ops.row_lock import row_lock_blocks
from app.sessions import SessionRefused
from app.settings import Settings
from app.tables import metadata

OLDEST_MARIADB = (10, 6)
OLDEST_MYSQL = (8, 0)
NO_SUCH_TABLE = 1146
CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, or should, as it was found."""

    name: str
    ok: bool
    found: str
    wanted: str
    is_required: bool = True  # False: the limit holds without it, so it stops nothing

    @property
    def status(self) -> Literal["ok", "warn", "fail"]:
        if self.ok:
            return "ok"
        return "fail" if self.is_required else "warn"


def all_hold(checks: list[Check]) -> bool:
    """Whether the service may do its work; a warning is no reason against it."""
    return all(check.status != "fail" for check in checks)


def cheap_checks(engine: Engine, settings: Settings) -> list[Check]:
    """Reachable, isolation, engines, migrations: few statements, no locks, nothing a caller may not see."""
    return _run(engine, settings, (_fitness, _isolation, _table_engines, _migrations, _cluster))


def all_checks(engine: Engine, settings: Settings) -> list[Check]:
    """The cheap ones and those that take a lock or read the server's configuration."""
    everything = (
        _fitness,
        _version,
        _isolation,
        _table_engines,
        _migrations,
        _cluster,
        _binlog_format,
        _timeouts,
        _grants,
        _needless_rights,
        _encryption,
        _root_key,
        _row_lock,
        _webhooks,
    )
    return _run(engine, settings, everything)


Checker = Callable[[Connection, Settings], Iterator[Check]]


def _run(engine: Engine, settings: Settings, checkers: tuple[Checker, ...]) -> list[Check]:
    try:
        with engine.connect() as connection:
            checks = [Check("reachable", ok=True, found="yes", wanted="yes")]
            for checker in checkers:
                checks += _checked(checker, connection, settings)
            return checks
    except SessionRefused as refused:
        return [Check("isolation", ok=False, found=str(refused), wanted="READ-COMMITTED")]
    except SQLAlchemyError as error:
        return [Check("reachable", ok=False, found=reason_of(error), wanted="yes")]


def _checked(checker: Checker, connection: Connection, settings: Settings) -> list[Check]:
    try:
        return list(checker(connection, settings))
    except DBAPIError as error:
        return [Check(checker.__name__.lstrip("_"), ok=False, found=reason_of(error), wanted="an answer")]
    finally:
        connection.rollback()


def variables(connection: Connection, *names: str) -> dict[str, str]:
    """Those session variables that the server knows."""
    listed = ", ".join(f"'{name}'" for name in names)
    rows = connection.exec_driver_sql(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({listed})")
    return {name.lower(): value for name, value in rows}


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def _fitness(connection: Connection, settings: Settings) -> Iterator[Check]:
    """Asked only of several nodes: a single one is used as it is."""
    if settings.has_several_nodes:
        found = unfitness(connection)
        yield Check("fit", ok=found is None, found=found or "yes", wanted="yes")


def _cluster(connection: Connection, settings: Settings) -> Iterator[Check]:
    if settings.has_several_nodes:
        found = cluster_of(connection) or "none"
        yield Check(CLUSTER, ok=True, found=found, wanted="that of the other nodes")


def _version(connection: Connection, settings: Settings) -> Iterator[Check]:
    if _is_sqlite(connection):
        found = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
        yield Check("version", ok=True, found=f"SQLite {found}", wanted="SQLite 3")
        return
    version = connection.exec_driver_sql("SELECT VERSION()").scalar_one()
    name, oldest = ("MariaDB", OLDEST_MARIADB) if "mariadb" in version.lower() else ("MySQL", OLDEST_MYSQL)
    numbers = tuple(int(part) for part in version.partition("-")[0].split(".")[:2])
    wanted = f"{name} {oldest[0]}.{oldest[1]} or later"
    yield Check("version", ok=numbers >= oldest, found=f"{name} {version}", wanted=wanted)


def _isolation(connection: Connection, settings: Settings) -> Iterator[Check]:
    if _is_sqlite(connection):
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        yield Check("journal mode", ok=mode == "wal", found=mode, wanted="wal")
        return
    found = variables(connection, "transaction_isolation", "tx_isolation")
    level = found.get("transaction_isolation") or found.get("tx_isolation", "unknown")
    yield Check("isolation", ok=level == "READ-COMMITTED", found=level, wanted="READ-COMMITTED")


def _table_engines(connection: Connection, settings: Settings) -> Iterator[Check]:
    """On an engine without transactions, FOR UPDATE holds nobody back and says nothing."""
    if _is_sqlite(connection):
        return
    rows = connection.exec_driver_sql(
        "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
    )
    engines = {name: engine for name, engine in rows}  # noqa: C416 - dict() of rows has no type
    for table in sorted(metadata.tables):
        found = engines.get(table) or "no such table"
        yield Check(f"engine of {table}", ok=found == "InnoDB", found=found, wanted="InnoDB")


def _migrations(connection: Connection, settings: Settings) -> Iterator[Check]:
    """A later version's schema will do: it is migrated first, and must not stop the replicas that serve."""
    head = migrations.head()
    try:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    except DBAPIError:
        found = None
    is_later = found is not None and found not in migrations.own_revisions()
    shown = f"{found} (of a later version)" if is_later else found or "none"
    yield Check("migrations", ok=found == head or is_later, found=shown, wanted=f"{head} (cupo migrate)")


def _binlog_format(connection: Connection, settings: Settings) -> Iterator[Check]:
    """InnoDB refuses writes at READ COMMITTED while the binary log is kept by statement."""
    if _is_sqlite(connection):
        return
    found = variables(connection, "log_bin", "binlog_format")
    on, form = found.get("log_bin") == "ON", found.get("binlog_format", "ROW")
    yield Check(
        "binlog_format", ok=not on or form != "STATEMENT", found=form if on else "no binary log", wanted="ROW"
    )


def _timeouts(connection: Connection, settings: Settings) -> Iterator[Check]:
    """Each bounds how long somebody who hangs can hold a user's lock."""
    if _is_sqlite(connection):
        return
    wanted: dict[str, int] = {
        "innodb_lock_wait_timeout": settings.lock_wait_seconds,
        "lock_wait_timeout": settings.lock_wait_seconds,
        "idle_transaction_timeout": settings.idle_transaction_seconds,
        "wait_timeout": settings.idle_connection_seconds,
    }
    for name, value in variables(connection, *wanted).items():
        yield Check(name, ok=int(value) == wanted[name], found=f"{value} s", wanted=f"{wanted[name]} s")


def _grants(connection: Connection, settings: Settings) -> Iterator[Check]:
    """Try each statement on no rows: what the account may do counts, not how the grant was written."""
    if _is_sqlite(connection):
        return
    for table, columns in sorted(metadata.tables.items()):
        missing, key = [], columns.primary_key.columns[0].name
        for right, statement in {
            "SELECT": f"SELECT {key} FROM {table} WHERE 1 = 0",  # noqa: S608 - names are our own
            "INSERT": f"INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0",  # noqa: S608
            "UPDATE": f"UPDATE {table} SET {key} = {key} WHERE 1 = 0",  # noqa: S608
            "DELETE": f"DELETE FROM {table} WHERE 1 = 0",  # noqa: S608
        }.items():
            try:
                connection.exec_driver_sql(statement)
            except DBAPIError as error:
                connection.rollback()  # the session that was denied is dropped; the next one goes on
                if number_of(error) == NO_SUCH_TABLE:
                    break  # told by its engine
                missing.append(right)
        else:
            yield _grants_on(table, missing)


def _grants_on(table: str, missing: list[str]) -> Check:
    found = f"no {', '.join(missing)}" if missing else "all"
    return Check(f"grants on {table}", ok=not missing, found=found, wanted="SELECT, INSERT, UPDATE, DELETE")


def _needless_rights(connection: Connection, settings: Settings) -> Iterator[Check]:
    """Whoever takes over the service has them too."""
    if _is_sqlite(connection):
        return
    found = "; ".join(needless_rights(connection))
    yield Check(
        "needless rights",
        ok=not found,
        found=found or "none",
        wanted="none (docs/database.md)",
        is_required=False,
    )


def _encryption(connection: Connection, settings: Settings) -> Iterator[Check]:
    if _is_sqlite(connection):
        return
    is_verified = settings.database_tls_ca_file is not None
    is_near = is_on_this_machine(connection.engine.url)
    tls = encryption(connection)
    yield Check(
        "encryption",
        ok=is_verified or is_near,
        found=f"{tls}, {'verified' if is_verified else 'not verified'}" if tls else "none",
        wanted="any, on this machine" if is_near else "verified (CUPO_DATABASE_TLS_CA_FILE)",
        is_required=False,
    )


def _root_key(connection: Connection, settings: Settings) -> Iterator[Check]:
    """It may do everything, never ends, and the trail does not tell who used it."""
    is_in_use = has_root_key(settings)
    yield Check(
        "root key",
        ok=not is_in_use,
        found="in use" if is_in_use else "none",
        wanted="none (cupo keys create, then CUPO_ROOT_KEY=off)",
        is_required=False,
    )


def _row_lock(connection: Connection, settings: Settings) -> Iterator[Check]:
    """The live proof, on two connections: while the first holds a lock, the second must be refused it."""
    found = "blocks" if row_lock_blocks(connection) else "does not block"
    yield Check("row lock", ok=found == "blocks", found=found, wanted="blocks")


def _webhooks(connection: Connection, settings: Settings) -> Iterator[Check]:
    """A warning and no more: on a machine of a developer it is as it should be."""
    found = ["https", "public addresses"]
    if settings.webhooks_allow_http:
        found[0] = "http and https"
    if settings.webhooks_allow_private:
        found[1] = "any address, private ones too"
    yield Check("webhooks go by", ok=True, found=", ".join(found), wanted="https, public addresses")
