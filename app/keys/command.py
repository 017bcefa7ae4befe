"""`cupo keys`: straight on the database, so that the first key needs no other one."""

import datetime
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Column, Table

from app import migrations
from app.auth.scopes import SCOPES
from app.console import fail, settings_or_fail
from app.db import Database
from app.errors import AppError
from app.keys import service
from app.keys.schemas import MOST_SECONDS, ApiKey, NewApiKey
from app.keys.service import CLI, Grant
from app.keys.token import new_token
from app.settings import BadSettings

PAGE = 500
UNIT_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}

keys = typer.Typer(name="keys", help="Make, list and revoke API keys.", no_args_is_help=True)


@keys.command()
def create(
    name: Annotated[str, typer.Option(help="What the key is used for.", show_default=False)],
    scope: Annotated[
        list[str],
        typer.Option(help=f"What it may do; may be repeated: {', '.join(SCOPES)}.", show_default=False),
    ],
    expires_in: Annotated[
        str | None, typer.Option(help="It ends this long from now: 90d, 12h, 30m or 60s.")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(help="It ends at this instant: 2027-11-30T09:30:00Z.")
    ] = None,
) -> None:
    """Make a key and print its token, which is shown this once."""
    if expires_in is not None and expires_at is not None:
        fail("--expires-in and --expires-at are two ways to say one thing; give one of them")
    seconds = None if expires_in is None else _seconds(expires_in)
    new = _checked(name=name, scopes=scope, expires_in_seconds=seconds)
    end = None if seconds is None else datetime.timedelta(seconds=seconds)
    grant = Grant(new.name, frozenset(new.scopes), end if expires_at is None else _instant(expires_at))
    token = new_token()
    with _database() as db:
        key = db.transact(service.create, CLI, token, grant)
    typer.echo(
        f"Key {key.id} ({key.name}) may {', '.join(key.scopes)}. Its token is not shown again:", err=True
    )
    typer.echo(token.text)


@keys.command("list")
def list_keys(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")] = False,
) -> None:
    """Show all keys, newest first, those that have ended too."""
    with _database() as db:
        found = list(_all_keys(db))
    if as_json:
        typer.echo(json.dumps([key.model_dump(mode="json") for key in found], indent=2))
    else:
        Console().print(_table(found))


@keys.command()
def revoke(key_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """Have a key end: within 10 seconds on every replica."""
    with _database() as db:
        key = db.transact(service.revoke, CLI.actor, key_id)
    typer.echo(f"Key {key.id} ({key.name}) was revoked by {key.revoked_by} at {_shown(key.revoked_at)} UTC.")


@contextmanager
def _database() -> Iterator[Database]:
    """The database; what it or a use case refuses ends the command with one line."""
    settings = settings_or_fail()
    try:
        migrations.migrate_embedded(settings)
        db = Database(settings)
        try:
            yield db
        finally:
            db.close()
    except (migrations.MigrationFailed, BadSettings) as reason:
        fail(reason)
    except AppError as refused:
        fail(refused.detail)


def _checked(**fields: object) -> NewApiKey:
    """As over HTTP, so that no key is made by one way that the other would refuse."""
    try:
        return NewApiKey.model_validate(fields)
    except ValidationError as invalid:
        options = {"name": "--name", "scopes": "--scope", "expires_in_seconds": "--expires-in"}
        told = ((options[str(one["loc"][0])], one["msg"]) for one in invalid.errors())
        fail("\n".join(f"{option}: {reason.removeprefix('Value error, ')}" for option, reason in told))


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([dhms])", text)
    if found is None:
        fail("--expires-in: is a number and a unit, such as 90d, 12h, 30m or 60s")
    return int(found[1]) * UNIT_SECONDS[found[2]]


def _instant(text: str) -> datetime.datetime:
    try:
        instant = datetime.datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        fail("--expires-at: is an instant with its offset, such as 2027-11-30T09:30:00Z")
    left = (instant - datetime.datetime.now(datetime.UTC)).total_seconds()
    if not 0 < left <= MOST_SECONDS:
        fail("--expires-at: lies in the past, or more than ten years ahead")
    return instant.astimezone(datetime.UTC).replace(tzinfo=None)


def _all_keys(db: Database) -> Iterator[ApiKey]:
    before = None
    while True:
        page = db.transact(service.list_keys, before, PAGE, read_only=True)
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].created_at, page[-1].id


def _table(found: list[ApiKey]) -> Table:
    table = Table(
        *(Column("id", no_wrap=True), "name", Column("scopes", no_wrap=True)),
        *(Column("last used (UTC)", no_wrap=True), Column("ends (UTC)", no_wrap=True)),
    )
    for key in found:
        end = f"revoked\n{_shown(key.revoked_at)}" if key.revoked_at else _shown(key.expires_at)
        table.add_row(key.id, key.name, "\n".join(key.scopes), _shown(key.last_used_at), end)
    return table


def _shown(instant: datetime.datetime | None) -> str:
    return "" if instant is None else f"{instant:%Y-%m-%d %H:%M}"
