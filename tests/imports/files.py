"""Files to import, and the command that imports them."""

import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from typer.testing import CliRunner, Result

from app.cli import cli
from app.db import Database
from app.imports.run import Decided, Import, steps
from app.imports.service import Outcome, OverLimit
from app.settings import Settings
from tests.services import ROOT_KEY


def write(path: Path, columns: str, lines: Iterable[Sequence[object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split(","))
        writer.writerows(lines)
    return path


def a_file(folder: Path, users: Sequence[int], devices_of_each: int) -> Path:
    """The devices `moved-in-0`, `moved-in-1` … of each user, far from each other."""
    lines = [(user, f"moved-in-{number}") for number in range(devices_of_each) for user in users]
    return write(folder / "devices.csv", "user_id,device_id", lines)


def cupo_import(url: str, file: Path, *options: str, **settings: object) -> Result:
    """The command in this process; `settings` are names without CUPO_."""
    environment = {"CUPO_DATABASE_URL": url, "CUPO_ROOT_KEY": ROOT_KEY}
    environment |= {f"CUPO_{name.upper()}": str(value) for name, value in settings.items()}
    return CliRunner().invoke(cli, ["import", str(file), *options], env=environment)


def start_import(url: str, file: Path) -> "subprocess.Popen[str]":
    """The command in a process of its own, to be stopped. Limit 3."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "app", "import", str(file)],
        env=environment | {"CUPO_DATABASE_URL": url, "CUPO_ROOT_KEY": ROOT_KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def counts(summary: str) -> dict[str, int]:
    """The numbers of the summary, those that are not 0."""
    found = re.findall(r"^ *([\d,]+)  (.+)$", summary, re.MULTILINE)
    numbers = {text: int(number.replace(",", "")) for number, text in found if " a second" not in text}
    return {text: number for text, number in numbers.items() if number}


def outcomes(
    db: Database, settings: Settings, file: Path, over_limit: OverLimit = OverLimit.SKIP
) -> dict[str, Outcome]:
    """What an import says of each device; `file` has no bad lines."""
    found: dict[str, Outcome] = {}
    with file.open(encoding="utf-8", newline="") as opened:
        for step in steps(db, Import(settings, over_limit, dry_run=False), opened):
            if isinstance(step, Decided):
                found |= {one.row.device_id: one.outcome for one in step.decisions}
    return found
