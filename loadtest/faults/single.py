"""One MariaDB server, private to the run, with the same handles as a cluster's nodes."""

import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pymysql

from loadtest.cluster.clusters import ACCOUNTS as ALL_ACCOUNTS
from loadtest.cluster.clusters import DATABASE
from loadtest.cluster.nodes import Health
from loadtest.errors import BadUse
from loadtest.installations import (
    Installation,
    Process,
    ServerError,
    find_installation,
    initialised_data,
    scratch_folder,
)
from loadtest.ports import LOOPBACK, free_port

START_SECONDS = 60
POLL_SECONDS = 0.05
LOG_DISK_MEGABYTES = 128  # ten minutes of a run's binary log are less than a third
ACCOUNTS = {name: ALL_ACCOUNTS[name] for name in ("cupo", "cupo_migrate", "cupo_admin")}
OPTIONS = (
    f"--bind-address={LOOPBACK}",
    "--skip-name-resolve",
    "--socket=socket",
    "--pid-file=pid",
    "--tmpdir=.",  # the data folder: in /tmp, a server that starts removes the temporary tables of others
    "--max-connections=300",
    "--innodb-buffer-pool-size=64M",
    # What was acknowledged is on disk, or a kill may lose it, and it would not be the service's fault.
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
    "--binlog-format=ROW",
    "--server-id=1",
)


@dataclasses.dataclass
class Server:
    port: int
    process: Process
    admin_password: str = dataclasses.field(repr=False)
    log_disk: "LogDisk | None" = None
    host: str = LOOPBACK
    number: int = 1

    def start(self) -> None:
        """Returns when it accepts connections. Main thread only. Raises ServerError."""
        self.process.start()
        give_up_at = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.pid is None or time.monotonic() > give_up_at:
                raise ServerError(f"MariaDB did not start:\n{self.process.last_words()}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """SIGTERM; one that does not end by it in time is killed."""
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send(signal.SIGCONT)

    def health(self) -> Health:
        return Health(self.answers(), "Synced", size=1, in_primary=True, takes_writes=True)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """As the administrator; the rows of the last one. Raises pymysql.MySQLError."""
        connection: Any = pymysql.connect(
            host=self.host,
            port=self.port,
            user="cupo_admin",
            password=self.admin_password,
            connect_timeout=2,
            read_timeout=START_SECONDS,
            autocommit=True,
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def answers(self, statement: str = "SELECT 1") -> bool:
        try:
            self.run(statement)
        except pymysql.MySQLError:
            return False
        return True


@dataclasses.dataclass(frozen=True)
class Single:
    """A database of one server."""

    nodes: tuple[Server]
    passwords: Mapping[str, str] = dataclasses.field(repr=False)

    def url(self, number: int, account: str = "cupo") -> str:  # noqa: ARG002 - there is one node
        server = self.nodes[0]
        return f"mysql+pymysql://{account}:{self.passwords[account]}@{server.host}:{server.port}/{DATABASE}"

    def wait_until_healthy(self, seconds: float) -> None:
        """Until a statement gets into the log, whose disk may have been full: the server then tries once a
        minute. Raises ServerError.
        """
        give_up_at = time.monotonic() + seconds
        while not self.nodes[0].answers("CREATE DATABASE IF NOT EXISTS cupo_probe"):
            if time.monotonic() > give_up_at:
                raise ServerError(f"MariaDB takes no writes after {seconds:g} s")
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def single(folder: Path, *, own_log_disk: bool) -> Iterator[Single]:
    """A running server, its log in `folder`; gone with its data at the end.

    With `own_log_disk` its binary log is on a small disk of its own, which takes root and mount namespaces.
    Raises BadUse.
    """
    try:
        installation = find_installation("mariadb")
        template = initialised_data(installation)
        with contextlib.ExitStack() as ends:
            scratch = ends.enter_context(scratch_folder(installation))
            shutil.copytree(template, scratch / "data")
            (scratch / "log").mkdir()
            installation.hand_over(scratch)
            disk = ends.enter_context(log_disk(installation, scratch / "log")) if own_log_disk else None
            passwords = {account: secrets.token_hex(16) for account in ACCOUNTS}
            server = _server_in(installation, scratch, passwords, folder / "database.log", disk)
            ends.callback(server.kill)
            server.start()
            yield Single((server,), passwords)
    except ServerError as error:
        raise BadUse(str(error)) from error


def _server_in(
    installation: Installation, scratch: Path, passwords: Mapping[str, str], log: Path, disk: "LogDisk | None"
) -> Server:
    accounts = scratch / "accounts.sql"
    accounts.touch(mode=0o600)
    accounts.write_text(_account_statements(passwords))
    installation.hand_over(scratch)
    port = free_port()
    command = installation.server_command(
        f"--datadir={scratch / 'data'}",
        f"--init-file={accounts}",
        f"--port={port}",
        f"--log-bin={scratch / 'log' / 'binlog'}",
        *OPTIONS,
    )
    process = Process((disk.enter if disk else ()) + command, log)
    return Server(port, process, passwords["cupo_admin"], disk)


def _account_statements(passwords: Mapping[str, str]) -> str:
    """Run at every start of the server, before it accepts connections."""
    statements = [
        # An anonymous account of localhost would be chosen before 'cupo'@'%'.
        "DROP USER IF EXISTS ''@'localhost'",
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4",
    ]
    for account, password in passwords.items():
        statements.append(f"CREATE USER IF NOT EXISTS '{account}'@'%' IDENTIFIED BY '{password}'")
        statements.append(f"GRANT {ACCOUNTS[account]} TO '{account}'@'%'")
    return "".join(f"{statement};\n" for statement in statements)


@dataclasses.dataclass(frozen=True)
class LogDisk:
    """A small file system that only those see who enter the namespace of the process that holds it."""

    holder: int
    folder: Path

    @property
    def enter(self) -> tuple[str, ...]:
        return ("nsenter", f"--mount=/proc/{self.holder}/ns/mnt", "--")

    def fill(self) -> None:
        with self._filler.open("wb") as filler, contextlib.suppress(OSError):
            while filler.write(bytes(65536)):
                filler.flush()

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return Path(f"/proc/{self.holder}/root{self.folder}/filler")


@contextlib.contextmanager
def log_disk(installation: Installation, folder: Path) -> Iterator[LogDisk]:
    """It outlives the server, whose log must still be there after a kill. Raises BadUse."""
    words = ("setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--propagation", "private", "--")
    mount = f"mount -t tmpfs -o size={LOG_DISK_MEGABYTES}m tmpfs '{folder}' && echo mounted"
    holder = subprocess.Popen(  # noqa: S603 - the words are ours
        (*words, "sh", "-c", f"{mount} && exec sleep infinity"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert holder.stdout is not None  # noqa: S101 - a pipe was asked for
        if holder.stdout.readline() != "mounted\n":
            raise BadUse("fill-log-disk takes root and the right to mount in a namespace of one's own")
        disk = LogDisk(holder.pid, folder)
        if installation.owner:
            os.chown(f"/proc/{holder.pid}/root{folder}", *installation.owner)
        yield disk
    finally:
        holder.kill()
        holder.communicate()
