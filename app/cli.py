"""The command `cupo`."""

import json
import logging.config
import shlex
import signal
import socket
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import uvicorn
from rich.console import Console
from rich.table import Table
from uvicorn.config import LOGGING_CONFIG

from app import migrations
from app.db import make_engine
from app.embedded import resolve_root_key
from app.imports.command import import_file
from app.imports.run import Import
from app.imports.service import OverLimit
from app.main import create_app
from app.ops.checks import all_checks
from app.settings import BadSettings, Settings, load_settings
from app.worker import work_until

SHUTDOWN_SECONDS = 15

cli = typer.Typer(
    name="cupo",
    help="Registers devices per user under a limit. Settings come from the environment, see the README.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    cli()


def _fail(message: object) -> NoReturn:
    for line in str(message).splitlines():
        typer.echo(f"cupo: {line}", err=True)
    sys.exit(1)


def _settings(**overrides: Any) -> Settings:
    try:
        return load_settings(**{name: value for name, value in overrides.items() if value is not None})
    except BadSettings as bad:
        _fail(bad)


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (CUPO_HOST).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (CUPO_PORT).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that serve calls (CUPO_WORKERS).")] = None,
    access_log: Annotated[bool, typer.Option(help="Print a line for each call.")] = False,
) -> None:
    """Serve the API until Ctrl-C or SIGTERM; calls in flight are finished first."""
    settings = _settings(host=host, port=port, workers=workers)
    try:
        key = resolve_root_key(settings)
        migrations.migrate_embedded(settings)
    except (migrations.MigrationFailed, BadSettings) as reason:
        _fail(reason)
    _require_free_port(settings)
    _greet(settings, key)
    uvicorn.run(
        "app.main:app",
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=access_log,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        log_config=_log_config(),
    )


def _require_free_port(settings: Settings) -> None:
    """Before an address is printed: uvicorn would say that it is taken only after that."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        _fail(f"cannot listen: {error.strerror}")


def _greet(settings: Settings, key: str) -> None:
    """Where it is, and one line to paste. A key that was set is not printed: its owner knows it."""
    host = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else settings.host  # noqa: S104 - compared, not bound
    address = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    shown = key if settings.root_key is None else "$CUPO_ROOT_KEY"
    body = shlex.quote(json.dumps({"device_id": "phone-1", "name": "My phone"}))
    typer.echo(f"API explorer  {address}/docs")
    typer.echo(f"Root key      {shown}")
    typer.echo("Register a device:")
    typer.echo(
        f'  curl -i {address}/v1/users/42/devices -H "Authorization: Bearer {shown}"'
        f" -H 'Content-Type: application/json' -d {body}"
    )


def _log_config() -> dict[str, Any]:
    logger = {"handlers": ["default"], "level": "INFO", "propagate": False}
    return {**LOGGING_CONFIG, "loggers": {**LOGGING_CONFIG["loggers"], "app": logger}}


@cli.command()
def migrate(
    downgrade_to: Annotated[
        str | None, typer.Option(help="A revision to go back to; `base` drops everything.")
    ] = None,
) -> None:
    """Bring the database's schema to this version. Safe to run from several replicas at once."""
    settings = _settings()
    try:
        migrations.migrate(settings, downgrade_to)
    except (migrations.MigrationFailed, BadSettings) as reason:
        _fail(reason)
    typer.echo(f"The schema is at {downgrade_to or migrations.head()}.")


@cli.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")] = False,
) -> None:
    """Check what must hold for the limit to hold; exit status 1 if anything does not."""
    settings = _settings()
    engine = make_engine(settings, pool_size=2)
    checks = all_checks(engine, settings)
    engine.dispose()
    healthy = all(check.ok for check in checks)
    if as_json:
        typer.echo(json.dumps({"ok": healthy, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        table = Table("", "check", "found", "wanted")
        for check in checks:
            mark = "[green]ok[/]" if check.ok else "[bold red]FAIL[/]"
            table.add_row(mark, check.name, check.found, check.wanted)
        Console().print(table)
    sys.exit(0 if healthy else 1)


@cli.command()
def worker(
    concurrency: Annotated[
        int | None, typer.Option(help="Deliveries to send at once (CUPO_WORKER_CONCURRENCY).")
    ] = None,
) -> None:
    """Send deliveries and remove what has run out, until Ctrl-C or SIGTERM.

    Any number may run, on any machine; what is under way is finished first, which takes 20 s at the most.
    """
    settings = _settings(worker_concurrency=concurrency)
    logging.config.dictConfig(_log_config())
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    work_until(stop, settings)


@cli.command("import")
def import_devices(
    file: Annotated[Path, typer.Argument(help="CSV with a line of column names, UTF-8.", show_default=False)],
    over_limit: Annotated[
        OverLimit, typer.Option(help="The newest devices beyond a user's limit: import them or not.")
    ] = OverLimit.SKIP,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and count, and write nothing.")] = False,
) -> None:
    """Register devices that users have already. Run again after a stop, it goes on; exit status 1: bad lines.

    Columns: user_id, device_id, and any of name, platform, model, os_version, app_version, metadata (JSON),
    registered_at, last_seen_at (2026-11-30T09:30:00Z), lease_seconds. A device that is there stays as it is.
    """
    settings = _settings()
    try:
        migrations.migrate_embedded(settings)
    except (migrations.MigrationFailed, BadSettings) as reason:
        _fail(reason)
    sys.exit(import_file(file, Import(settings, over_limit, dry_run)))


@cli.command()
def openapi() -> None:
    """Print the OpenAPI document, for generating clients without a running service."""
    app = create_app(_settings(root_key="the document does not depend on it"))
    typer.echo(json.dumps(app.openapi(), indent=2))
