"""Commands that are told to end before they have started, and a database that is not ready for them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.ops.checks import Check
from app.ops.first_look import why_not_ready
from loadtest.ports import LOOPBACK, free_port
from tests.processes import started
from tests.servers import Server, fresh_database
from tests.services import Service, running_service

# Told in the middle of the imports, where nothing but Python itself can have a handler.
TOLD_WHILE_IMPORTING = """
import os, signal, sys

class Tell:
    def find_spec(self, name, path=None, target=None):
        if name == "fastapi":
            sys.meta_path.remove(self)
            {tell}

if "--multiprocessing-fork" {where} sys.argv:
    sys.meta_path.insert(0, Tell())
"""
COMMANDS = ["serve", "worker", "doctor", "audit", "migrate", "openapi"]


def environment_with(folder: Path, program: str) -> dict[str, str]:
    """Where Python runs `program` as it starts."""
    (folder / "sitecustomize.py").write_text(program)
    names = {"PYTHONPATH": f"{folder}:{Path.cwd()}", "CUPO_DATABASE_URL": f"sqlite:///{folder}/cupo.db"}
    return os.environ | names | {"CUPO_PORT": str(free_port())}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_told_to_end_while_it_starts_says_nothing(
    folder: Path, command: str, number: signal.Signals
) -> None:
    tell = f"os.kill(os.getpid(), {int(number)})"
    ended = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", "app", command],
        env=environment_with(folder, TOLD_WHILE_IMPORTING.format(tell=tell, where="not in")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-number, "", "")


def test_ctrl_c_while_workers_start_is_quiet_too(folder: Path) -> None:
    tell = f"os.killpg(0, {int(signal.SIGINT)})"
    with started(
        [sys.executable, "-m", "app", "serve", "--workers", "2"],
        env=environment_with(folder, TOLD_WHILE_IMPORTING.format(tell=tell, where="in")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in said
    assert "replaced" not in said


def warnings_of(service: Service) -> list[str]:
    lines = [line for line in service.logged().splitlines() if line.startswith("{")]
    return [entry["event"] for entry in map(json.loads, lines) if entry["level"] == "warning"]


def test_without_a_database_it_starts_and_says_that_it_has_none(folder: Path) -> None:
    nowhere = f"mysql+pymysql://u:p@{LOOPBACK}:{free_port()}/cupo"
    with running_service(nowhere, folder) as service:
        (said,) = warnings_of(service)
        assert said.startswith("The database cannot be reached (error 2003")


def test_before_the_schema_is_there_it_starts_and_says_how_to_make_it(server: Server, folder: Path) -> None:
    with fresh_database(server, "cupo_test_unmigrated") as url, running_service(url, folder) as service:
        (said,) = warnings_of(service)
        assert said.endswith("(it is at: none): run `cupo migrate`")


def test_a_database_that_is_ready_is_no_reason_to_warn(folder: Path) -> None:
    with running_service(f"sqlite:///{folder}/cupo.db", folder) as service:
        assert warnings_of(service) == []


def test_any_other_fault_of_the_database_is_told_too() -> None:
    good = Check("reachable", ok=True, found="yes", wanted="yes")
    fault = Check("isolation", ok=False, found="SERIALIZABLE", wanted="READ-COMMITTED")
    assert why_not_ready([good]) is None
    assert why_not_ready([good, fault]) == (
        "The database is not fit: isolation is SERIALIZABLE, not READ-COMMITTED; see `cupo doctor`"
    )
