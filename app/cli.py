"""The command `cupo`."""

import json
import logging.config
import resource
import shlex
import signal
import socket
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from app import logs, migrations, processes, tracing
from app.audit.command import COULD_NOT_LOOK
from app.audit.command import audit as audit_all
from app.auth.user_tokens import user_tokens
from app.console import fail, settings_or_fail
from app.embedded import resolve_root_key
from app.engines import make_engine
from app.imports.command import import_file
from app.imports.run import Import
from app.imports.service import OverLimit
from app.keys.command import keys
from app.main import create_app
from app.ops.all_nodes import of_each
from app.ops.checks import Check, all_checks, all_hold
from app.ops.worker_port import Progress, open_port
from app.settings import BadSettings, Settings, load_settings
from app.worker import work_until

cli = typer.Typer(
    name="cupo",
    help="Registers devices per user under a limit. Settings come from the environment, see the README.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
cli.add_typer(keys)


def main() -> None:
    cli()


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (CUPO_HOST).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (CUPO_PORT).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that serve calls (CUPO_WORKERS).")] = None,
) -> None:
    """Serve the API until Ctrl-C or SIGTERM; calls in flight are finished first."""
    settings = settings_or_fail(host=host, port=port, workers=workers)
    try:
        key = resolve_root_key(settings)
        user_tokens(settings)  # its keys may be no good, which each process would find out anew
        migrations.migrate_embedded(settings)
    except (migrations.MigrationFailed, BadSettings) as reason:
        fail(reason)
    _require_free_port(settings)
    _allow_files_for(settings.max_connections)
    _greet(settings, key)
    sys.exit(processes.serve(settings))


def _allow_files_for(connections: int) -> None:
    """Often 1,024 are allowed: clients would take them from the database, whose connections are files too."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + 1024  # to be refused takes a connection as well
    if allowed < wanted:
        reachable = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, most))


def _require_free_port(settings: Settings) -> None:
    """Before an address is printed: uvicorn would say that it is taken only after that."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        fail(f"cannot listen: {error.strerror}")


def _greet(settings: Settings, key: str | None) -> None:
    """Where it is, and one line to paste. A key that was set is not printed: its owner knows it."""
    host = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else settings.host  # noqa: S104 - compared, not bound
    address = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    typer.echo(f"API explorer  {address}/docs")
    if key is None:
        typer.echo("Root key      none: API keys and user tokens alone are let in;")
        typer.echo("              `cupo keys create` makes a key")
        return
    shown = key if settings.root_key is None else "$CUPO_ROOT_KEY"
    body = shlex.quote(json.dumps({"device_id": "phone-1", "name": "My phone"}))
    typer.echo(f"Root key      {shown}")
    typer.echo("Register a device:")
    typer.echo(
        f'  curl -i {address}/v1/users/42/devices -H "Authorization: Bearer {shown}"'
        f" -H 'Content-Type: application/json' -d {body}"
    )


@cli.command()
def migrate(
    downgrade_to: Annotated[
        str | None, typer.Option(help="A revision to go back to; `base` drops everything.")
    ] = None,
) -> None:
    """Bring the database's schema to this version. Safe to run from several replicas at once."""
    settings = settings_or_fail()
    try:
        migrations.migrate(settings, downgrade_to)
    except (migrations.MigrationFailed, BadSettings) as reason:
        fail(reason)
    typer.echo(f"The schema is at {downgrade_to or migrations.head()}.")


@cli.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")] = False,
) -> None:
    """Check what must hold for the limit to hold; exit status 1 if anything does not. Warnings leave it 0."""
    settings = settings_or_fail()
    looks = {}
    for url in settings.urls:
        engine = make_engine(settings, url, pool_size=2)
        looks[f"{url.host}:{url.port}"] = all_checks(engine, settings)
        engine.dispose()
    checks = of_each(looks, settings)
    healthy = all_hold(checks)
    if as_json:
        told = [{**asdict(check), "status": check.status} for check in checks]
        typer.echo(json.dumps({"ok": healthy, "checks": told}, indent=2))
    else:
        Console().print(_table(checks))
    sys.exit(0 if healthy else 1)


def _table(checks: list[Check]) -> Table:
    marks = {"ok": "[green]ok[/]", "warn": "[bold yellow]WARN[/]", "fail": "[bold red]FAIL[/]"}
    table = Table("", Column("check", no_wrap=True), "found", "wanted")
    for check in checks:
        table.add_row(marks[check.status], check.name, check.found, check.wanted)
    return table


@cli.command()
def audit(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each finding.")] = False,
) -> None:
    """Look whether the limit held: users above it and since when, devices that the trail does not explain.

    Takes no lock and holds nobody up. Exit status 0: it held; 1: it did not; 2: could not look.
    """
    try:
        settings = load_settings()
    except BadSettings as bad:
        fail(bad, COULD_NOT_LOOK)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it says that it stopped before the end
    sys.exit(audit_all(settings, as_json=as_json))


@cli.command()
def worker(
    concurrency: Annotated[
        int | None, typer.Option(help="Deliveries to send at once (CUPO_WORKER_CONCURRENCY).")
    ] = None,
) -> None:
    """Send deliveries and remove what has run out, until Ctrl-C or SIGTERM.

    Any number may run, on any machine; what is under way is finished first, which takes 20 s at the most.
    """
    settings = settings_or_fail(worker_concurrency=concurrency)
    logging.config.dictConfig(logs.configuration(settings))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    tracing.start(settings)
    progress = Progress()
    try:
        with open_port(settings, progress):
            work_until(stop, settings, progress.note)
    except OSError as error:
        fail(f"CUPO_WORKER_METRICS_PORT: cannot listen: {error.strerror}")
    finally:
        tracing.stop()


@cli.command("import")
def import_devices(
    file: Annotated[Path, typer.Argument(help="CSV with a line of column names, UTF-8.", show_default=False)],
    over_limit: Annotated[
        OverLimit, typer.Option(help="The newest devices beyond a user's limit: import them or not.")
    ] = OverLimit.SKIP,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and count, and write nothing.")] = False,
) -> None:
    """Register devices that users have already. Run again after a stop, it goes on.

    Exit status 1: bad lines; 2: no file to use; 3: the database was lost or too busy; 130: stopped by Ctrl-C.

    Columns: user_id, device_id, and any of name, platform, model, os_version, app_version, metadata (JSON),
    registered_at, last_seen_at (2026-11-30T09:30:00Z), lease_seconds. A device that is there stays as it is.
    """
    settings = settings_or_fail()
    try:
        migrations.migrate_embedded(settings)
    except (migrations.MigrationFailed, BadSettings) as reason:
        fail(reason)
    sys.exit(import_file(file, Import(settings, over_limit, dry_run)))


@cli.command()
def openapi() -> None:
    """Print the OpenAPI document, for generating clients without a running service."""
    try:
        app = create_app(settings_or_fail(root_key="the document does not depend on it"))
    except BadSettings as reason:
        fail(reason)
    typer.echo(json.dumps(app.openapi(), indent=2))
