"""`python -m bench` in a process of its own, with the server that it starts."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.__main__ import app, command_line
from bench.result import read
from loadtest.ports import LOOPBACK
from tests.processes import started
from tests.programs import WRK, program

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 100
HERE: dict[str, Any] = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def words(*given: object) -> list[str]:
    return [sys.executable, "-m", "bench", *map(str, given)]


@pytest.fixture
def kind(pytestconfig: pytest.Config) -> str:
    program(WRK)
    return str(pytestconfig.getoption("--server"))


def test_one_scenario_is_measured_kept_and_told_again(kind: str, tmp_path: Path) -> None:
    kept, page, again = (tmp_path / name for name in ("kept.json", "page.md", "again.md"))
    asked = ("--only", "latency", "--quick", "--rounds", 1, "--server", kind)
    done = subprocess.run(  # noqa: S603 - our own command
        words(*asked, "--json", kept, "--markdown", page), timeout=PATIENCE_SECONDS, check=False, **HERE
    )
    assert done.returncode in {0, 1}, done.stderr
    result = read(kept)
    assert result.samples[0].rate > 0
    assert {one.failure for one in result.samples} == {None}
    assert result.command == f"scripts/bench --only latency --quick --rounds 1 --server {kind}"
    told = CliRunner().invoke(app, ["--from", str(kept), "--markdown", str(again)])
    assert (told.exit_code, again.read_text()) == (done.returncode, page.read_text())


def test_ctrl_c_ends_what_was_started(kind: str) -> None:
    with started(words("--only", "latency", "--seconds", 60, "--server", kind), **HERE) as running:
        assert running.stderr is not None
        found = re.search(r"port (\d+)", running.stderr.readline())
        assert found is not None
        running.send_signal(signal.SIGINT)
        said, complaints = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 130, complaints
    assert "Traceback" not in complaints
    assert "not measured" in said
    with socket.socket() as probe:
        assert probe.connect_ex((LOOPBACK, int(found[1]))) != 0


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--only", "cold"], "no scenario 'cold'"),
        (["--from", "/nowhere.json"], "/nowhere.json is not a kept result"),
        (["--json", "/proc/nowhere"], "cannot write the result"),
    ],
)
def test_bad_use_is_one_clear_line_and_status_2(given: list[str], complaint: str) -> None:
    told = CliRunner().invoke(app, given)
    assert (told.exit_code, told.stdout) == (2, "")
    assert complaint in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_without_wrk_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = CliRunner().invoke(app, ["--only", "hot"])
    assert (told.exit_code, len(told.stderr.splitlines())) == (2, 1)
    assert "install the package wrk" in told.stderr


def test_the_command_is_told_without_its_files() -> None:
    given = ["--quick", "--json", "a b", "--markdown=c", "--only", "hot"]
    assert command_line(given) == "scripts/bench --quick --only hot"
