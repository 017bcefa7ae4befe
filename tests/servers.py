"""Private, throwaway MariaDB and MySQL servers, and the databases of the tests on them.

    with server_under_test("mariadb") as server, fresh_database(server, "cupo_test") as url:
        ...

A private server listens on the loopback address only and has a data folder of its own. Both are gone when
the `with` ends, also by an exception, SIGINT or SIGTERM. After a SIGKILL of the tests the server is gone at
once, and its folder when a server is next started.

On it the service has the rights that `docs/database.md` grants and no more.

`CUPO_TEST_DATABASE_URL` names a server to use instead; its account must be allowed to create and drop
databases, all named `cupo_test…`.
"""

import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError

from loadtest.installations import (
    Installation,
    Kind,
    Process,
    ServerError,
    find_installation,
    initialised_data,
    scratch_folder,
)
from loadtest.ports import LOOPBACK, free_port

START_SECONDS = 60
POLL_SECONDS = 0.02
DATABASE_PAGE = Path(__file__).parent.parent / "docs" / "database.md"

_OPTIONS = (
    f"--bind-address={LOOPBACK}",
    "--skip-name-resolve",
    "--socket=socket",  # in the data folder; a whole path might pass the 107 bytes that a socket's may have
    "--pid-file=pid",
    # Likewise: in the machine's /tmp, a MariaDB that starts removes the temporary tables of every other one.
    "--tmpdir=.",
    "--max-connections=500",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=64M",
)
_KIND_OPTIONS: Mapping[Kind, tuple[str, ...]] = {
    "mariadb": (),
    "mysql": ("--skip-log-bin", "--mysqlx=OFF", "--secure-file-priv=NULL"),
}


@dataclass(frozen=True)
class Server:
    """A database server that the tests may use: a private one, or the one of `CUPO_TEST_DATABASE_URL`.

    `admin_user` may do everything on a private server. On the databases of `fresh_database`, and nowhere
    else, `migration_user` may change the schema and `app_user` the rows. On a server that is not private all
    three are the URL's account, and the calls that stop it raise ServerError.
    """

    kind: Kind
    version: str
    host: str
    port: int
    admin_user: str
    admin_password: str = field(repr=False)
    migration_user: str
    migration_password: str = field(repr=False)
    app_user: str
    app_password: str = field(repr=False)
    query: Mapping[str, str | tuple[str, ...]] = field(default_factory=lambda: {"charset": "utf8mb4"})
    process: Process | None = field(default=None, repr=False, compare=False)

    @property
    def is_running(self) -> bool:
        """Of a private server: neither stopped nor killed."""
        return self.process is not None and self.process.pid is not None

    @property
    def is_private(self) -> bool:
        return self.process is not None

    def url(self, database: str, user: str | None = None, password: str | None = None) -> str:
        """SQLAlchemy URL with its password, for `app_user` unless said otherwise; `database` may be empty."""
        user = user or self.app_user
        known = {
            self.app_user: self.app_password,
            self.migration_user: self.migration_password,
            self.admin_user: self.admin_password,
        }
        return sa.URL.create(
            "mysql+pymysql",
            username=user,
            password=known[user] if password is None else password,
            host=self.host,
            port=self.port,
            database=database or None,
            query=self.query,
        ).render_as_string(hide_password=False)

    @contextmanager
    def admin_connection(self, database: str = "") -> Iterator[sa.Connection]:
        """A connection of its own as `admin_user`, autocommit, closed at the end."""
        engine = sa.create_engine(
            self.url(database, self.admin_user),
            poolclass=sa.NullPool,
            isolation_level="AUTOCOMMIT",
            # Longer than the wait for a lock that _drop_database sets: the server's own error says more.
            connect_args={"connect_timeout": 5, "read_timeout": 30},
        )
        with engine.connect() as connection:
            yield connection

    def start(self) -> None:
        """Start again after `stop` or `kill`, same port and data; returns when it accepts connections.

        Main thread only.
        """
        process = self._own_process()
        process.start()
        give_up_at = time.monotonic() + START_SECONDS
        while not self._answers():
            # Polled: the two servers have no way in common of telling their parent that they are ready.
            if process.pid is None:
                raise ServerError(f"{self.kind} ended while starting:\n{process.last_words()}")
            if time.monotonic() > give_up_at:
                raise ServerError(f"{self.kind} not ready in {START_SECONDS} s:\n{process.last_words()}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Orderly shutdown (SIGTERM); returns when the process is gone. A second call does nothing."""
        self._own_process().stop()

    def kill(self) -> None:
        """SIGKILL, as a crash; returns when the process is gone. A second call does nothing."""
        self._own_process().kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as on a dead network."""
        self._own_process().send(signal.SIGSTOP)

    def resume(self) -> None:
        self._own_process().send(signal.SIGCONT)

    def _own_process(self) -> Process:
        if self.process is None:
            raise ServerError("the server of CUPO_TEST_DATABASE_URL is not ours to start or stop")
        return self.process

    def _answers(self) -> bool:
        try:
            with self.admin_connection():
                return True
        except OperationalError:
            return False


@contextmanager
def server_under_test(kind: Kind) -> Iterator[Server]:
    """The server of `CUPO_TEST_DATABASE_URL` where that is set, whatever its kind; else a private one."""
    given = os.environ.get("CUPO_TEST_DATABASE_URL")
    if given:
        yield _given_server(given)
    else:
        with private_server(kind) as server:
            yield server


@contextmanager
def private_server(kind: Kind, *options: str, files: Mapping[str, bytes] | None = None) -> Iterator[Server]:
    """A running server of this kind, gone with its data at the end. Main thread only.

    `files` are laid into its data folder, which is where `options` may name them from.

    Until then SIGINT and SIGTERM raise KeyboardInterrupt.
    """
    with _interrupts_raised():
        installation = find_installation(kind)
        template = initialised_data(installation)
        with scratch_folder(installation) as folder:
            shutil.copytree(template, folder / "data")
            for name, content in (files or {}).items():
                (folder / "data" / name).write_bytes(content)
            server = _private_server_in(installation, folder, *options)
            try:
                server.start()
                yield server
            finally:
                server.kill()  # its data go as well: an orderly shutdown would only take longer


@contextmanager
def fresh_database(server: Server, name: str) -> Iterator[str]:
    """An empty utf8mb4 database, whatever was there before, and its URL for `migration_user`."""
    if not re.fullmatch(r"cupo_test\w*", name):
        raise ValueError(f"{name!r}: a database that tests may drop is called cupo_test…")
    with server.admin_connection() as admin:
        _drop_database(admin, name)
        admin.exec_driver_sql(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        if server.is_private:
            for grant in _documented_grants(server, name):
                admin.exec_driver_sql(grant)
    try:
        yield server.url(name, server.migration_user)
    finally:
        if not server.is_private:
            with server.admin_connection() as admin:
                _drop_database(admin, name)
        elif server.is_running:  # else its data have gone with it
            _revoke_grants(server, name)


def _revoke_grants(server: Server, name: str) -> None:
    """So that a later test finds its accounts with the rights that it gave them, and no others."""
    with server.admin_connection() as admin:
        for grant in _documented_grants(server, name):
            revoke = re.sub(r"^GRANT (.*) TO ('.*)$", r"REVOKE \1 FROM \2", grant, flags=re.DOTALL)
            with suppress(OperationalError, ProgrammingError):  # the test itself has revoked it
                admin.exec_driver_sql(revoke)


def documented_sql() -> list[str]:
    """What `docs/database.md` has its reader run, word for word."""
    blocks = re.findall(r"^```sql\n(.*?)^```", DATABASE_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [statement.strip() for block in blocks for statement in block.split(";") if statement.strip()]


def _documented_grants(server: Server, database: str) -> Iterator[str]:
    pattern = database.replace("_", r"\_")
    accounts = {"'cupo'@'%'": server.app_user, "'cupo_migrate'@'%'": server.migration_user}
    for statement in documented_sql():
        rights, to, account = statement.partition(" ON cupo.* TO ")
        if to:
            yield f"{rights} ON `{pattern}`.* TO '{accounts[account]}'@'%%'"


def counted_deadlocks(server: Server) -> int:
    """How many deadlocks InnoDB has found since the server started, in all its databases."""
    query = (
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_DEADLOCKS'"
        if server.kind == "mariadb"
        else "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
    )
    with server.admin_connection() as admin:
        return int(admin.exec_driver_sql(query).scalar_one())


def _drop_database(admin: sa.Connection, name: str) -> None:
    # A transaction that a failed test left open would hold DROP back for a day.
    admin.exec_driver_sql("SET SESSION lock_wait_timeout = 10")
    admin.exec_driver_sql(f"DROP DATABASE IF EXISTS `{name}`")


def _given_server(text: str) -> Server:
    url = sa.make_url(text).set(drivername="mysql+pymysql")
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
        version = str(connection.exec_driver_sql("SELECT VERSION()").scalar_one())
    user, password = url.username or "root", str(url.password or "")
    return Server(
        kind="mariadb" if "mariadb" in version.lower() else "mysql",
        version=version,
        host=url.host or LOOPBACK,
        port=url.port or 3306,
        admin_user=user,
        admin_password=password,
        migration_user=user,
        migration_password=password,
        app_user=user,
        app_password=password,
        query={"charset": "utf8mb4", **url.query},
    )


def _private_server_in(installation: Installation, folder: Path, *options: str) -> Server:
    port = free_port()
    accounts = folder / "accounts.sql"
    command = installation.server_command(
        f"--datadir={installation.inner_path(folder / 'data')}",
        f"--init-file={installation.inner_path(accounts)}",
        f"--port={port}",
        *_OPTIONS,
        *_KIND_OPTIONS[installation.kind],
        *options,
    )
    server = Server(
        kind=installation.kind,
        version=installation.version,
        host=LOOPBACK,
        port=port,
        admin_user="cupo_admin",
        admin_password=secrets.token_hex(16),
        migration_user="cupo_migrations",
        migration_password=secrets.token_hex(16),
        app_user="cupo_app",
        app_password=secrets.token_hex(16),
        process=Process(command, folder / "server.log"),
    )
    accounts.touch(mode=0o600)
    accounts.write_text(_account_statements(server))
    installation.hand_over(folder)
    return server


def _account_statements(server: Server) -> str:
    """Run at every start of the server, before it accepts connections."""
    return "\n".join(
        (
            # An anonymous account of localhost would be chosen before 'cupo_app'@'%'.
            "DROP USER IF EXISTS ''@'localhost';",
            *(
                f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}';"
                for user, password in (
                    (server.admin_user, server.admin_password),
                    (server.migration_user, server.migration_password),
                    (server.app_user, server.app_password),
                )
            ),
            f"GRANT ALL ON *.* TO '{server.admin_user}'@'%' WITH GRANT OPTION;",
            # MySQL is initialised with a root account that has no password.
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{server.admin_password}';"
            if server.kind == "mysql"
            else "",
        )
    )


@contextmanager
def _interrupts_raised() -> Iterator[None]:
    # By default SIGTERM ends Python without any `finally`, and a shell's background job ignores SIGINT.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
