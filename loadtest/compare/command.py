"""`compare` as a command: options in, tables and page out, exit status 0 when all was as expected."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import pymysql
import redis
import typer

from loadtest.compare.crew import CallerFailed
from loadtest.compare.database import Address, words_of
from loadtest.compare.page import page
from loadtest.compare.plan import LabPlan
from loadtest.compare.run import LabReport, chosen, run_lab
from loadtest.compare.table import console, markdown, show
from loadtest.errors import BadUse

UNSAID = ("--database-url", "--redis-url", "--output", "--out", "--markdown")
EXIT_SURPRISE = 1
EXIT_BAD_USE = 2
EXIT_INTERRUPTED = 130


def compare(
    database_url: Annotated[
        str,
        typer.Option(
            envvar="CUPO_DATABASE_URL", show_envvar=True, help="The server; its databases are left alone."
        ),
    ] = "",
    users: Annotated[
        int, typer.Option("--users", "--rounds", help="Users in each phase, one after another.")
    ] = 100,
    callers: Annotated[int, typer.Option(help="Callers at once on each user.")] = 20,
    processes: Annotated[int, typer.Option(help="Processes that the callers are spread over.")] = 4,
    limit: Annotated[int, typer.Option(help="Devices per user.")] = 2,
    only: Annotated[
        list[str] | None, typer.Option(metavar="STRATEGY", help="Only this one; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives each caller the same devices.")] = 1,
    redis_url: Annotated[
        str | None, typer.Option(help="A Redis to use; else one is started, if there is one.")
    ] = None,
    lab_database: Annotated[str, typer.Option(help="Made for the run and dropped after it.")] = "cupo_lab",
    output: Annotated[
        Path | None,
        typer.Option("--output", "--out", metavar="DIR", help="Where compare.html and compare.json go."),
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="The tables for a README.")
    ] = None,
) -> None:
    """Try every way to guard the limit under the same load, straight on the database.

    Exit status: 0 when each strategy held or broke as it must, 1 when one did not, 2 when the run could not
    begin.
    """
    try:
        plan = LabPlan(users, callers, processes, limit, seed)
        strategies = chosen(only or [])
        report = LabReport(plan, command_line(sys.argv[1:]))
        address = Address.of(database_url, lab_database)
        make_ready(output, markdown_file)
        try:
            run_lab(report, address, strategies, redis_url, console(stderr=True).print)
        except KeyboardInterrupt:
            report.interrupted = True
    except BadUse as wrong:
        leave(str(wrong))
    except (CallerFailed, pymysql.err.Error, redis.RedisError, OSError) as error:
        leave(f"the run broke off: {words_of(error)}")
    show(report, console())
    write(report, output, markdown_file)
    if report.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if report.surprises:
        raise typer.Exit(EXIT_SURPRISE)


def leave(words: str) -> NoReturn:
    typer.echo(f"loadtest: {words}", err=True)
    raise typer.Exit(EXIT_BAD_USE)


def command_line(words: list[str]) -> str:
    """The command as it was given, without URLs, which may hold passwords, and without where results go."""
    said, is_unsaid_value = ["python", "-m", "loadtest"], False
    for word in words if words[:1] == ["compare"] else ["compare", *words]:
        name, is_pair, _value = word.partition("=")
        if not is_unsaid_value and name not in UNSAID:
            said.append(shlex.quote(word))
        is_unsaid_value = name in UNSAID and not is_pair
    return " ".join(said)


def make_ready(output: Path | None, markdown_file: Path | None) -> None:
    """A run of minutes must not end with nowhere to write."""
    try:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
        if markdown_file is not None:
            markdown_file.parent.mkdir(parents=True, exist_ok=True)
            markdown_file.touch()
    except OSError as error:
        raise BadUse(f"cannot write the results: {error}") from None


def write(report: LabReport, output: Path | None, markdown_file: Path | None) -> None:
    if markdown_file is not None:
        markdown_file.write_text(markdown(report), encoding="utf-8")
    if output is not None:
        (output / "compare.html").write_text(page(report), encoding="utf-8")
        (output / "compare.json").write_text(json.dumps(as_json(report), indent=1), encoding="utf-8")
        console(stderr=True).print(f"written: {output / 'compare.html'}, {output / 'compare.json'}")


def as_json(report: LabReport) -> dict[str, object]:
    """Durations in seconds."""
    return {
        "command": report.command,
        "server": report.server,
        "redis": report.redis,
        "machine": report.machine,
        "plan": asdict(report.plan),
        "strategies": [
            {
                "name": result.strategy.name,
                "expected": result.expected,
                "not_run": result.not_run,
                "phases": {phase: asdict(measured) for phase, measured in result.phases.items()},
                "surprises": result.surprises,
            }
            for result in report.results
        ],
        "interleavings": [asdict(shown) for shown in report.shown],
        "surprises": report.surprises,
        "interrupted": report.interrupted,
    }
