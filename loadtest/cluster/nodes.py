"""One node of a cluster: a database server of its own in a namespace of its own."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pymysql

from loadtest.cluster.network import NUMBERS, ClusterError, Network
from loadtest.installations import Installation

PORT = 3306
START_SECONDS = 120
LOOK_SECONDS = 2
STOP_SECONDS = 30
ENTER_SECONDS = 5  # until a command is in its namespace, where it is looked for
POLL_SECONDS = 0.1
# Where a node sees the cluster's folder: the accounts of the servers may not enter every folder of ours.
INNER = Path("/mnt")
PROGRAMS = INNER / "bin"  # the cluster's own, for what a server looks for by name
_ENTER = f'mount --bind "$0" "$1" && shift && PATH=$PATH:{PROGRAMS} exec "$@"'

OPTIONS = (
    "--bind-address=0.0.0.0",
    "--skip-name-resolve",
    f"--port={PORT}",
    "--max-connections=300",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=64M",
)


@dataclasses.dataclass(frozen=True)
class Health:
    """What a node says of itself. `size` is the number of nodes that it takes for members; 0: it is none."""

    is_running: bool
    state: str = "down"
    size: int = 0
    in_primary: bool = False
    takes_writes: bool = False

    @property
    def is_member(self) -> bool:
        return self.in_primary and self.state in ("Synced", "ONLINE")


class Technique(Protocol):
    """What differs between Galera and Group Replication."""

    def options(self, node: "Node", *, first: bool) -> tuple[str, ...]:
        """Of the server, for the first start of the first node or for any other start."""

    def join(self, node: "Node", *, first: bool) -> None:
        """Once the server answers: make it a member. May be called again."""

    def health(self, node: "Node") -> Health: ...

    def blocked_applier(self, node: "Node") -> contextlib.AbstractContextManager[None]: ...


@dataclasses.dataclass(frozen=True)
class Node:
    """`number` is 1, 2 or 3. The service reaches it at `host` and `port` as any other server."""

    number: int
    network: Network
    folder: Path  # of the cluster
    installation: Installation
    technique: Technique
    admin: tuple[str, str] = dataclasses.field(repr=False)

    @property
    def host(self) -> str:
        return self.network.address(self.number)

    @property
    def port(self) -> int:
        return PORT

    @property
    def log(self) -> Path:
        return self.folder / f"node-{self.number}.log"

    @property
    def data(self) -> Path:
        return self.folder / f"data-{self.number}"

    @property
    def inner_data(self) -> Path:
        return INNER / self.data.name

    @property
    def is_running(self) -> bool:
        return bool(self.network.processes(self.number))

    def start(self) -> None:
        """Start after `kill`; returns once it is a member again, which may take a copy of the data.

        Raises ClusterError if it is none in two minutes, or if no other node runs that it could join.
        """
        if self.is_running:
            raise ClusterError(f"node {self.number} is running already")
        if not any(self.network.processes(other) for other in NUMBERS if other != self.number):
            raise ClusterError("no other node runs: nobody knows which of them has the last commits")
        self.launch(first=False)

    def launch(self, *, first: bool) -> None:
        """Start the server and have it join, or, as the `first` one, found the cluster."""
        words = self.installation.server_command(
            f"--datadir={self.inner_data}",
            "--socket=socket",
            "--tmpdir=.",  # the data folder: in /tmp, a node that starts removes the others' temporary tables
            *OPTIONS,
            *self.technique.options(self, first=first),
        )
        run_detached(self.inside(words), self.log)
        until(lambda: self.is_running, ENTER_SECONDS)
        give_up_at = time.monotonic() + START_SECONDS
        while not self._has_joined(first=first):
            # Polled: a server has no way of telling who started it that it is ready.
            if time.monotonic() > give_up_at:
                raise ClusterError(f"node {self.number} joined not in time:\n{self.last_words()}")
            if not self.is_running:
                raise ClusterError(f"node {self.number} ended while starting:\n{self.last_words()}")
            time.sleep(POLL_SECONDS)

    def _has_joined(self, *, first: bool) -> bool:
        with contextlib.suppress(pymysql.MySQLError):
            if self.health().is_member:
                return True
            self.technique.join(self, first=first)
        return False

    def inside(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The command that runs `words` in the node's namespace, with the cluster's folder at INNER."""
        seen_from_outside = self.installation.root / INNER.relative_to("/")
        namespace = ("ip", "netns", "exec", self.network.namespace(self.number))
        return (*namespace, "sh", "-c", _ENTER, str(self.folder), str(seen_from_outside), *words)

    def kill(self) -> None:
        """SIGKILL, as a crash; returns when nothing of it runs. A second call does nothing."""
        self._signal(signal.SIGKILL)
        if not self.network.wait_until_empty(self.number, STOP_SECONDS):
            raise ClusterError(f"node {self.number} does not end")

    def stop(self) -> None:
        """Orderly shutdown (SIGTERM)."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        if not self.network.wait_until_empty(self.number, STOP_SECONDS):
            self.kill()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open and nothing answers, as on a dead machine."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.network.processes(self.number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def health(self) -> Health:
        """One look, which waits no longer than LOOK_SECONDS for an answer."""
        if not self.is_running:
            return Health(is_running=False)
        try:
            return self.technique.health(self)
        except pymysql.MySQLError:
            return Health(is_running=True, state="does not answer")

    def block_applier(self) -> contextlib.AbstractContextManager[None]:
        """Within the block the node goes on to answer but applies nothing that others commit."""
        return self.technique.blocked_applier(self)

    @contextlib.contextmanager
    def connection(self, patience_seconds: float = START_SECONDS) -> Iterator[Any]:
        """Of the administrator, autocommit; lost if a statement goes so long without an answer."""
        user, password = self.admin
        connection: Any = pymysql.connect(
            host=self.host,
            port=self.port,
            user=user,
            password=password,
            connect_timeout=LOOK_SECONDS,
            read_timeout=patience_seconds,
            autocommit=True,
        )
        with contextlib.closing(connection):
            yield connection

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """As the administrator; the rows of the last one."""
        with self.connection() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def look(self, query: str) -> list[tuple[Any, ...]]:
        """`run` for one who does not wait for a node that does not answer."""
        with self.connection(LOOK_SECONDS) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def copy_data(template: Path, nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        shutil.copytree(template, node.data)
        (node.data / "auto.cnf").unlink(missing_ok=True)  # MySQL's own id of the server, which must differ
        node.installation.hand_over(node.data)


def run_detached(words: tuple[str, ...], log: Path) -> None:
    """Start what outlives us, and is nobody's child: a node is ended by whoever has the cluster's folder."""
    with log.open("ab") as output:
        subprocess.run(  # noqa: S603 - our own words
            ("setsid", "--fork", *words),  # noqa: S607 - util-linux, wherever the machine has it
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=True,
        )


def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Polled, since none of this is told; False if it does not hold after `seconds`."""
    give_up_at = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(POLL_SECONDS)
    return True
