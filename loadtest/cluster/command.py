"""The command: starts a cluster that stays, and works on the one that is there."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from loadtest.cluster.clusters import KINDS, Cluster, Kind, launch, open_cluster, prepare
from loadtest.cluster.group_replication import Mode
from loadtest.cluster.network import ClusterError, OneWay
from loadtest.installations import ServerError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Three real database nodes in network namespaces of this machine, for trying out and for faults.",
)
Number = Annotated[int, typer.Argument(min=1, max=3, help="Of the node.")]
HEAL_SECONDS = 120


def folder_of(kind: Kind) -> Path:
    """In the working directory, as all that the project keeps there."""
    return Path("var") / f"cluster-{kind}"


def commands_of(kind: Kind) -> typer.Typer:
    """The commands for one kind of cluster, which work on the one in its folder."""
    commands = typer.Typer(no_args_is_help=True, help=f"Three nodes of {kind}.")

    def run(name: str, work: str, say: str) -> None:
        @commands.command(name, help=say)
        def command(number: Number) -> None:
            with _told(), _opened(kind) as cluster:
                getattr(cluster.node(number), work)()

    run("kill", "kill", "SIGKILL, as a crash.")
    run("pause", "pause", "SIGSTOP: connections stay open and nothing answers.")
    run("resume", "resume", "Let a paused node go on.")
    run("start", "start", "Start a killed node; ends once it is a member again.")

    @commands.command()
    def up(mode: Annotated[Mode, typer.Option(help="Of Group Replication.")] = "multi-primary") -> None:
        """Start the cluster; it stays until `down`. Ctrl-C before it is healthy removes it."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # which would else leave half a cluster
        with _told():
            cluster = prepare(kind, folder_of(kind), mode)
            try:
                launch(cluster)
            except BaseException:
                cluster.down()
                raise
            _tell(cluster)

    @commands.command()
    def status() -> None:
        """How each node is, and the URLs of its accounts."""
        with _told(), _opened(kind) as cluster:
            _tell(cluster)

    @commands.command()
    def partition(
        number: Number,
        one_way: Annotated[OneWay | None, typer.Option(help="Lose only what comes in, or goes out.")] = None,
    ) -> None:
        """Cut a node off from the other two; this machine still reaches it."""
        with _told(), _opened(kind) as cluster:
            cluster.partition(number, one_way)

    @commands.command()
    def heal() -> None:
        """End all partitions; ends once all nodes are members again."""
        with _told(), _opened(kind) as cluster:
            cluster.heal()
            cluster.wait_until_healthy(HEAL_SECONDS)

    @commands.command("block-applier")
    def block_applier(number: Number) -> None:
        """Have a node apply nothing that the others commit, until Ctrl-C."""
        with _told(), _opened(kind) as cluster, cluster.node(number).block_applier():
            typer.echo(f"Node {number} applies nothing. Ctrl-C lets it go on.")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()

    @commands.command()
    def down() -> None:
        """End the nodes and remove all that is theirs."""
        with _told(), _opened(kind) as cluster:
            cluster.down()

    return commands


for each in KINDS:
    app.add_typer(commands_of(each), name=each)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (ClusterError, ServerError) as error:
        typer.echo(f"cluster: {error}", err=True)
        raise typer.Exit(2) from error


@contextlib.contextmanager
def _opened(kind: Kind) -> Iterator[Cluster]:
    yield open_cluster(folder_of(kind))


def _tell(cluster: Cluster) -> None:
    for number, health in cluster.status().items():
        primary = "in the primary component" if health.in_primary else "outside the primary component"
        writes = "takes writes" if health.takes_writes else "read-only"
        said = f"{health.state}, {primary}, {writes}, sees {health.size}" if health.size else health.state
        typer.echo(f"node {number}: {said}")
    for number in (1, 2, 3):
        typer.echo(f"CUPO_DATABASE_URL={cluster.url(number)}")
    typer.echo(f"CUPO_MIGRATION_DATABASE_URL={cluster.url(1, 'cupo_migrate')}")
