"""The audit as the tests ask for it."""

import json
import os
from typing import Any

from typer.testing import CliRunner, Result

from app.audit.findings import Finding
from app.audit.run import LOOKS, pages
from app.cli import cli
from app.db import Database
from app.settings import Settings


def all_found(db: Database, settings: Settings) -> list[Finding]:
    return [one for look in LOOKS for page in pages(db, settings, look) for one in page.found]


def cupo_audit(settings: Settings, *options: str) -> Result:
    """The command in this process."""
    environment = {
        "CUPO_DATABASE_URL": settings.database_url.get_secret_value(),
        "CUPO_DEFAULT_DEVICE_LIMIT": str(settings.default_device_limit),
    }
    return CliRunner().invoke(cli, ["audit", *options], env=os.environ | environment)


def said_as_json(result: Result) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The findings, and the numbers of the last line."""
    *findings, last = [json.loads(line) for line in result.stdout.splitlines()]
    return findings, last["summary"]
