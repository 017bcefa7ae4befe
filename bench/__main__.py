"""`python -m bench`: measure, or tell a kept result again."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.errors import BadUse
from bench.plan import QUICK, Kind, Plan
from bench.result import Result, read
from bench.rows import complaints
from bench.run import new_result, run
from bench.scenarios import NAMES, chosen
from bench.table import markdown, show

WIDTH_WITHOUT_TERMINAL = 200
FILES = ("--json", "--markdown", "--from", "--onto")
EXIT_COMPLAINTS = 1
EXIT_BAD_USE = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="A trial of everything, in some two minutes.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help=f"Of {', '.join(NAMES)}, with commas between; or all."),
    ] = None,
    server: Annotated[Kind, typer.Option(help="The database server that all contestants share.")] = "mariadb",
    seconds: Annotated[int | None, typer.Option(min=1, help="Of each run.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Runs of each contestant.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same order.")] = 1,
    filled_users: Annotated[int | None, typer.Option(min=6, help="Users of the filled database.")] = None,
    filled_devices: Annotated[int | None, typer.Option(min=6, help="Their devices.")] = None,
    memory_seconds: Annotated[int | None, typer.Option(min=2, help="How long memory is watched.")] = None,
    buffer_pool: Annotated[str, typer.Option(help="innodb_buffer_pool_size of the server.")] = "4G",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Keeps the result.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="The table of ratios, for a page.")
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Tells a kept result again; measures nothing."),
    ] = None,
    onto: Annotated[
        Path | None,
        typer.Option(
            "--onto", metavar="FILE", help="A kept result that this run adds to, or renews in part."
        ),
    ] = None,
) -> None:
    """Cupo beside its peers, in turn, on one database server.

    Exit status: 0 when all that is wanted was reached, 1 when it was not or a row is not valid, 2 when
    the run could not begin.
    """
    given: dict[str, Any] = {
        "seconds": seconds,
        "rounds": rounds,
        "filled_users": filled_users,
        "filled_devices": filled_devices,
        "memory_seconds": memory_seconds,
    }
    plan = replace(QUICK if quick else Plan(), seed=seed, server=server, buffer_pool=buffer_pool)
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    try:
        before = read(onto) if onto else None
        _make_ready(json_file, markdown_file)
        result = read(kept) if kept else measured(plan, chosen(only, is_quick=quick))
        if before is not None:
            result = result.onto(before)
        if json_file is not None:
            json_file.write_text(result.to_json(), encoding="utf-8")
        if markdown_file is not None:
            markdown_file.write_text(markdown(result), encoding="utf-8")
    except BadUse as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(EXIT_BAD_USE) from None
    show(result, console())
    if result.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if any(complaints(result)):
        raise typer.Exit(EXIT_COMPLAINTS)


def _make_ready(*files: Path | None) -> None:
    """A run of minutes must not end with nowhere to write."""
    for file in files:
        if file is not None:
            try:
                file.touch()
            except OSError as error:
                raise BadUse(f"cannot write the result: {error}") from None


def measured(plan: Plan, names: tuple[str, ...]) -> Result:
    result = new_result(command_line(sys.argv[1:]), plan, names)
    try:
        run(result, console(stderr=True).print)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def command_line(words: list[str]) -> str:
    """The command as it was given, without where the result goes."""
    said, is_file = ["scripts/bench"], False
    for word in words:
        name, is_pair, _ = word.partition("=")
        if not is_file and name not in FILES:
            said.append(word)
        is_file = name in FILES and not is_pair
    return shlex.join(said)


def console(*, stderr: bool = False) -> Console:
    """Wide enough for the tables where no terminal says how wide it is."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)


if __name__ == "__main__":
    app()
