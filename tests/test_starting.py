"""Commands that are told to end before they have started, and a database that is not ready for them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.processes import started

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
