"""`python -m loadtest`: race and steady over HTTP, compare on the database, report on a run that was kept."""

import contextlib
import datetime
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest import plan as plans
from loadtest import record, report, runs
from loadtest.client import Access
from loadtest.compare.command import compare
from loadtest.crew import Crew
from loadtest.database import open_database
from loadtest.errors import BadUse
from loadtest.faults.command import faults
from loadtest.linearizability.command import check_folder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Proves on your own database that the device limit holds, and what that costs. "
    "Exit status: 0 the limit held, 1 it did not (users are named), 2 the run says nothing.",
)

Users = Annotated[int, typer.Option(help="How many users, all new, with ids of the seed's own range.")]
Limit = Annotated[int | None, typer.Option(help="The limit you expect; checked against the service's.")]
Processes = Annotated[int, typer.Option(help="Load processes.")]
Concurrency = Annotated[int, typer.Option(help="Connections of all processes together.")]
Target = Annotated[list[str] | None, typer.Option(help="Base address; repeated for replicas, used in turn.")]
Key = Annotated[str, typer.Option(envvar="CUPO_ROOT_KEY", help="Bearer key.", show_default=False)]
DatabaseUrl = Annotated[
    str, typer.Option(envvar="CUPO_DATABASE_URL", help="The service's database, read by the auditor.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="Repeats a plan; by default a new one.")]
Mix = Annotated[str, typer.Option(help="Weights of register, repeat, revoke, list.")]
Timeout = Annotated[str, typer.Option(help="After this a call counts as unanswered.")]
EmptyFirst = Annotated[bool, typer.Option("--empty-first", help="Revoke what the run's users have already.")]
Out = Annotated[Path | None, typer.Option(help="Folder for samples, record and report.")]

DEFAULT_TARGET = "http://127.0.0.1:8000"
DEFAULT_DATABASE = "sqlite:///var/cupo.db"


@app.command()
def race(
    context: typer.Context,
    users: Users = 1,
    calls: Annotated[int, typer.Option(help="Calls, all released at one instant.")] = 1000,
    limit: Limit = None,
    processes: Processes = 4,
    concurrency: Concurrency = 200,
    target: Target = None,
    key: Key = "",
    database_url: DatabaseUrl = DEFAULT_DATABASE,
    seed: Seed = None,
    mix: Mix = "register=1",
    timeout: Timeout = "30s",
    empty_first: EmptyFirst = False,
    out: Out = None,
) -> None:
    """Many calls at once for a few users, released from a barrier."""
    with exit_status_of_bad_use():
        chosen = secrets.randbelow(2**32) if seed is None else seed
        order = runs.Order(
            plan=plans.race(chosen, users, calls, limit or 0, plans.parse_mix(mix)),
            expected_limit=limit,
            access=Access(_targets(target), key, plans.parse_seconds("--timeout", timeout)),
            crew=Crew(processes, concurrency),
            database=open_database(database_url),
            empty_first=empty_first,
            command=command_line(context, chosen),
        )
        status = carry_out(order, out)
    raise typer.Exit(status)


@app.command()
def steady(
    context: typer.Context,
    users: Users = 1000,
    rate: Annotated[str, typer.Option(help="Calls per second, sent on schedule.")] = "300/s",
    ramp: Annotated[str, typer.Option(help="Time to reach the rate, part of the duration.")] = "5s",
    duration: Annotated[str, typer.Option(help="The whole schedule.")] = "60s",
    limit: Limit = None,
    processes: Processes = 2,
    concurrency: Concurrency = 200,
    target: Target = None,
    key: Key = "",
    database_url: DatabaseUrl = DEFAULT_DATABASE,
    seed: Seed = None,
    mix: Mix = "register=4,repeat=2,revoke=2,list=2",
    timeout: Timeout = "30s",
    empty_first: EmptyFirst = False,
    out: Out = None,
) -> None:
    """Calls on a schedule, whatever the answers do; waiting counts from the scheduled instant."""
    with exit_status_of_bad_use():
        chosen = secrets.randbelow(2**32) if seed is None else seed
        ramp_seconds = plans.parse_seconds("--ramp", ramp)
        pace = plans.Pace(plans.parse_rate(rate), ramp_seconds, plans.parse_seconds("--duration", duration))
        order = runs.Order(
            plan=plans.steady(chosen, users, pace, limit or 0, plans.parse_mix(mix)),
            expected_limit=limit,
            access=Access(_targets(target), key, plans.parse_seconds("--timeout", timeout)),
            crew=Crew(processes, concurrency),
            database=open_database(database_url),
            empty_first=empty_first,
            command=command_line(context, chosen),
        )
        status = carry_out(order, out)
    raise typer.Exit(status)


@app.command("report")
def report_again(
    folder: Annotated[Path, typer.Argument(help="Where --out, or loadtest-results, keeps the run.")],
) -> None:
    """Tells a kept run again and writes its page anew; same exit status."""
    with exit_status_of_bad_use():
        run, samples = record.read(folder)
        status = report.tell(run, samples, folder, Console())
    raise typer.Exit(status)


@app.command("check")
def check_histories(
    folder: Annotated[Path, typer.Argument(help="Of a run that kept each of its calls, as faults does.")],
    limit: Annotated[
        int | None, typer.Option(help="Of each user at the start; by default the run's.")
    ] = None,
) -> None:
    """Whether each user's answers fit some order of the calls.

    Exit status: 0 they do; 1 those of the users that are named do not; 2 it could not be decided.
    """
    with exit_status_of_bad_use():
        status = check_folder(folder, limit, Console())
    raise typer.Exit(status)


def carry_out(order: runs.Order, out: Path | None) -> int:
    """The run, its files, its table; returns the exit status."""
    folder = out or runs.default_folder(order, datetime.datetime.now(datetime.UTC))
    if out is not None:
        runs.make_folder(out)
    run, samples = runs.carry_out(order, Console(stderr=True))
    runs.make_folder(folder)
    record.write(folder, run, samples)
    return report.tell(run, samples, folder, Console())


@contextlib.contextmanager
def exit_status_of_bad_use() -> Iterator[None]:
    try:
        yield
    except BadUse as error:
        typer.echo(f"loadtest: {error}", err=True)
        raise typer.Exit(record.EXIT_STATUS["unproven"]) from error


def command_line(context: typer.Context, seed: int) -> str:
    """Repeats the run, without key and database URL, which may hold secrets, and without its folder."""
    words = ["python", "-m", "loadtest", str(context.info_name)]
    for name, value in {**context.params, "seed": seed}.items():
        if name in ("key", "database_url", "out") or value is None or value is False:
            continue
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, list) else [value]:
            words += [option] if one is True else [option, str(one)]
    return shlex.join(words)


def _targets(given: list[str] | None) -> tuple[str, ...]:
    return tuple(given or [DEFAULT_TARGET])


app.command()(compare)
app.command()(faults)

if __name__ == "__main__":
    app()
