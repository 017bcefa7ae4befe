"""`scripts/test` itself, run as a caller would, on a test that never ends."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import POLL_SECONDS

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 60

ENDLESS_TEST = """
import time

def test_without_end(server):
    print("started", server.port, server.process.log.parent, flush=True)
    while True:
        time.sleep(0.01)
"""

needs_private_server = pytest.mark.skipif(
    "CUPO_TEST_DATABASE_URL" in os.environ, reason="a server is given, so scripts/test starts none"
)


@dataclass(frozen=True)
class Run:
    process: subprocess.Popen[str]
    port: int
    folder: Path

    def end_by(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode

    def server_answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def endless_run(kind: str, folder: Path) -> Iterator[Run]:
    endless = folder / "test_endless.py"
    endless.write_text(ENDLESS_TEST)
    process = subprocess.Popen(  # noqa: S603  our own script
        [
            ROOT / "scripts/test",
            "--server",
            kind,
            "-s",
            "-c",
            "pyproject.toml",
            "-p",
            "tests.conftest",
            endless,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout
        said = []
        for line in process.stdout:
            said.append(line)
            if "started" in line:
                break
        else:
            pytest.fail("".join(said))
        port, server_folder = said[-1].split()[-2:]
        yield Run(process, int(port), Path(server_folder))
    finally:
        process.kill()
        process.communicate()


@needs_private_server
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_script_leaves_no_server_and_no_folder(
    pytestconfig: pytest.Config, tmp_path: Path, number: signal.Signals
) -> None:
    with endless_run(pytestconfig.getoption("--server"), tmp_path) as run:
        assert run.server_answers()
        assert run.folder.exists()
        assert run.end_by(number) == pytest.ExitCode.INTERRUPTED
        assert not run.server_answers()
        assert not run.folder.exists()


@needs_private_server
def test_killed_script_leaves_no_server(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    with endless_run(pytestconfig.getoption("--server"), tmp_path) as run:
        assert run.server_answers()
        run.end_by(signal.SIGKILL)
        # The kernel ends the server, but tells nobody when it is done.
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while run.server_answers() and time.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
        assert not run.server_answers()


@pytest.mark.parametrize(
    "arguments", [["--server"], ["--server", "postgres"], ["--server=", "-q"], ["--group"]]
)
def test_wrong_arguments_are_refused_in_one_line(arguments: list[str]) -> None:
    ended = subprocess.run(  # noqa: S603  our own script
        [ROOT / "scripts/test", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("test: --server")
    assert ended.stderr.count("\n") == 1
