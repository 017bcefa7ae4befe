"""Three real nodes on this machine, started, looked at, disturbed, and removed with all that is theirs."""

import contextlib
import dataclasses
import json
import secrets
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from loadtest.cluster import galera
from loadtest.cluster.group_replication import RECOVERY_USER, GroupReplication, Mode
from loadtest.cluster.network import NUMBERS, ClusterError, Network, OneWay, new_network
from loadtest.cluster.nodes import PORT, PROGRAMS, Health, Node, Technique, copy_data, until
from loadtest.installations import find_installation, initialised_data

Kind = Literal["galera", "group-replication"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Account = Literal["cupo", "cupo_migrate", "cupo_admin"]
DATABASE = "cupo"
END_SECONDS = 60
RECORD = "cluster.json"
MEMBERS = "replication_group_members"
# As docs/database.md grants them; the administrator is for who works on the cluster.
ACCOUNTS: dict[str, str] = {
    "cupo": f"SELECT, INSERT, UPDATE, DELETE ON {DATABASE}.*",
    "cupo_migrate": f"SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX ON {DATABASE}.*",
    "cupo_admin": "ALL ON *.*",
    RECOVERY_USER: "REPLICATION SLAVE ON *.*",
}


@dataclasses.dataclass(frozen=True)
class Record:
    """What must be known of a cluster to work on it, kept in its folder."""

    kind: Kind
    mode: Mode
    network: Network
    group: str
    passwords: dict[str, str] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Cluster:
    folder: Path
    record: Record
    nodes: tuple[Node, ...]

    def node(self, number: int) -> Node:
        """Raises ClusterError unless `number` is 1, 2 or 3."""
        if number not in NUMBERS:
            raise ClusterError(f"there is no node {number}: they are 1, 2 and 3")
        return self.nodes[number - 1]

    def url(self, number: int, account: Account = "cupo") -> str:
        """SQLAlchemy URL of the node's database `cupo`, with its password."""
        password = self.record.passwords[account]
        return f"mysql+pymysql://{account}:{password}@{self.node(number).host}:{PORT}/{DATABASE}"

    def partition(self, number: int, one_way: OneWay | None = None) -> None:
        """Cut a node off from the others, or in one direction only; the service still reaches all three."""
        self.node(number)
        self.record.network.cut(number, one_way)

    def heal(self) -> None:
        """End all partitions."""
        self.record.network.heal()

    def status(self) -> dict[int, Health]:
        return {node.number: node.health() for node in self.nodes}

    def is_healthy(self) -> bool:
        return all(health.is_member and health.size == len(NUMBERS) for health in self.status().values())

    def wait_until_healthy(self, seconds: float) -> None:
        """Until all three are members; who was expelled is told to join again. Raises ClusterError."""

        def is_healthy() -> bool:
            for node in self.nodes:
                if node.health().state in ("ERROR", "OFFLINE"):
                    with contextlib.suppress(Exception):
                        node.technique.join(node, first=False)
            return self.is_healthy()

        if not until(is_healthy, seconds):
            raise ClusterError(f"not healthy in {seconds:g} s: {self.status()}")

    def down(self) -> None:
        """End the nodes and remove all that is theirs, the folder too."""
        network = self.record.network
        for node in self.nodes:
            with contextlib.suppress(ClusterError):  # its namespace is not there
                node.kill()
        network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def start(kind: Kind, folder: Path, mode: Mode = "multi-primary") -> Iterator[Cluster]:
    """A healthy cluster in `folder`, which must not be there yet or be empty. Raises ClusterError.

    Cluster and folder are gone at the end of the block, and also after a SIGKILL of this process.
    """
    prepared = prepare(kind, folder, mode)
    with _kept(folder):
        launch(prepared)
        yield prepared


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """A process that removes the cluster as soon as the pipe to it closes, which the kernel does for us."""
    keeper = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", "loadtest.cluster.keeper", str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us
    )
    try:
        yield
    finally:
        keeper.communicate(timeout=END_SECONDS)


def prepare(kind: Kind, folder: Path, mode: Mode = "multi-primary") -> Cluster:
    """The folder with its data, and nothing that runs. Raises ClusterError."""
    if folder.exists() and any(folder.iterdir()):
        raise ClusterError(f"{folder} is not empty: a cluster has a folder of its own")
    record = Record(
        kind=kind,
        mode=mode,
        network=new_network(),
        group=str(uuid.uuid4()),
        passwords={account: secrets.token_hex(16) for account in ACCOUNTS},
    )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # the servers' account finds its own in it
    kept = folder / RECORD
    kept.touch(mode=0o600)
    kept.write_text(json.dumps(dataclasses.asdict(record)))
    return open_cluster(folder)


def launch(cluster: Cluster) -> None:
    """Start all three nodes; returns when they are healthy."""
    record, folder = cluster.record, cluster.folder
    installation = cluster.nodes[0].installation
    if record.kind == "galera":
        galera.provider()
        galera.copy_scripts(folder / PROGRAMS.name)
    accounts = folder / "accounts.sql"
    accounts.touch(mode=0o600)
    accounts.write_text(_account_statements(record))
    installation.hand_over(accounts)
    copy_data(initialised_data(installation), cluster.nodes)
    record.network.make()
    for node in cluster.nodes:
        node.launch(first=node.number == NUMBERS[0])
    cluster.wait_until_healthy(END_SECONDS)


def open_cluster(folder: Path) -> Cluster:
    """The one that somebody has started there. Raises ClusterError."""
    try:
        kept = json.loads((folder / RECORD).read_text())
    except FileNotFoundError:
        raise ClusterError(f"no cluster in {folder}: start one with `up`") from None
    record = Record(**{**kept, "network": Network(**kept["network"])})
    installation = find_installation("mariadb" if record.kind == "galera" else "mysql").that_outlives_us()
    technique: Technique
    if record.kind == "galera":
        technique = galera.Galera()
    else:
        technique = GroupReplication(record.mode, record.group, record.passwords[RECOVERY_USER])
    admin = ("cupo_admin", record.passwords["cupo_admin"])
    nodes = (Node(number, record.network, folder, installation, technique, admin) for number in NUMBERS)
    return Cluster(folder, record, tuple(nodes))


def _account_statements(record: Record) -> str:
    """Run when a server starts that has none of these yet, and not told to the others."""
    alone = "SET SESSION wsrep_on = OFF" if record.kind == "galera" else "SET SESSION sql_log_bin = OFF"
    statements = [
        alone,
        "DROP USER IF EXISTS ''@'localhost'",
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4",
    ]
    for account, rights in ACCOUNTS.items():
        password = record.passwords[account]
        statements.append(f"CREATE USER IF NOT EXISTS '{account}'@'%' IDENTIFIED BY '{password}'")
        statements.append(f"GRANT {rights} TO '{account}'@'%'")
    if record.kind == "group-replication":  # by which the service sees whether a node is in its group
        statements.append(f"GRANT SELECT ON performance_schema.{MEMBERS} TO 'cupo'@'%'")
    return "".join(f"{statement};\n" for statement in statements)
