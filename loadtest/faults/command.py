"""`faults` as a command: options in, table and page out."""

import datetime
import secrets
import shlex
from pathlib import Path
from typing import Annotated

import typer

from loadtest import plan as plans
from loadtest.compare.table import console
from loadtest.database import open_database
from loadtest.errors import BadUse
from loadtest.faults import report
from loadtest.faults.clients import Plan
from loadtest.faults.replicas import CUPO
from loadtest.faults.run import Order, carry_out
from loadtest.faults.schedule import NAMED, Topology, parse_schedule
from loadtest.record import EXIT_STATUS
from loadtest.runs import make_folder

OWN: tuple[Topology, ...] = ("single", "galera", "group-replication")


def faults(
    context: typer.Context,
    database: Annotated[
        str,
        typer.Option(
            help="What to start: single (one MariaDB), galera, group-replication (one primary). Or the URL "
            "of one that is there and at head, which is left alone: then only replicas are struck."
        ),
    ] = "single",
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Faults as kill-database@10s:2s, partition#2@30s:15s, or one of "
            f"{', '.join(NAMED)}; by default that of the database."
        ),
    ] = None,
    duration: Annotated[str, typer.Option(help="Repeats the schedule for so long; 0s: once.")] = "0s",
    replicas: Annotated[int, typer.Option(min=1, max=16, help="Of the service.")] = 3,
    workers: Annotated[int, typer.Option(min=1, max=16, help="Processes of each replica.")] = 2,
    limit: Annotated[int, typer.Option(min=1, max=20, help="Devices per user.")] = 3,
    users: Annotated[int, typer.Option(min=1, help="Users at a time; new ones all the time.")] = 3,
    clients: Annotated[int, typer.Option(min=1, help="Clients of each user.")] = 5,
    pause: Annotated[str, typer.Option(help="Between two calls of a client, on average.")] = "200ms",
    setting: Annotated[
        list[str] | None, typer.Option(metavar="CUPO_…=…", help="A setting of the service; repeatable.")
    ] = None,
    serve: Annotated[
        str, typer.Option(help="Starts a replica, when --port and --workers are added to it.")
    ] = shlex.join((*CUPO, "serve")),
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Repeats what is asked.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for operations, logs, record and report.")] = None,
) -> None:
    """Load on several replicas while faults are worked on them and on their database; histories are checked.

    Exit status: 0 all is linearizable, nothing is lost, all nodes agree; 1 something is not so, and users
    are named; 2 the run says nothing.
    """
    say = console(stderr=True).print
    try:
        topology = _topology(database)
        chosen = secrets.randbelow(2**32) if seed is None else seed
        order = Order(
            topology=topology,
            database_url=database if topology == "given" else "",
            schedule=parse_schedule(schedule or topology, topology).for_seconds(
                plans.parse_seconds("--duration", duration)
            ),
            plan=Plan(chosen, limit, users, clients, pause_seconds=plans.parse_seconds("--pause", pause)),
            replicas=replicas,
            workers=workers,
            serve=shlex.split(serve),
            settings=_settings(setting or []),
            command=_command_line(context, chosen, topology),
        )
        folder = (
            out or Path("loadtest-results") / f"faults-{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}"
        )
        make_folder(folder)
        record, _ = carry_out(order, folder.absolute(), say)
        status = report.tell(record, folder, console())
    except BadUse as error:
        typer.echo(f"loadtest: {error}", err=True)
        raise typer.Exit(EXIT_STATUS["unproven"]) from error
    raise typer.Exit(status)


def _topology(database: str) -> Topology:
    if database in OWN:
        return database
    if "://" not in database:
        raise BadUse(f"--database {database!r} is neither one of {', '.join(OWN)} nor a URL")
    open_database(database)  # says what is wrong with a URL
    return "given"


def _settings(given: list[str]) -> dict[str, str]:
    found = dict(one.partition("=")[::2] for one in given)
    for name in found:
        if not name.startswith("CUPO_"):
            raise BadUse(f"--setting {name!r} is none of the service's: write CUPO_LOCK_BUDGET_SECONDS=10")
    return found


def _command_line(context: typer.Context, seed: int, topology: Topology) -> str:
    """Repeats the run, without its folder and the URL of a given database, which may hold a password."""
    words = ["python", "-m", "loadtest", "faults"]
    for name, value in {**context.params, "seed": seed}.items():
        if name == "out" or value is None or (name == "database" and topology == "given"):
            continue
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{name}", str(one)]
    return shlex.join(words)
