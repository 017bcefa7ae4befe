"""What the tests start ends with them, and is what they then talk to."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import processes, services
from tests.processes import started
from tests.services import Service, running_service

STUBBORN = """
import signal, subprocess, sys
if len(sys.argv) < 3:
    subprocess.Popen([sys.executable, *sys.argv, "child"])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
signal.pause()
"""


def test_what_does_not_end_by_sigterm_is_killed_with_what_it_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.1)
    program = folder / "stubborn.py"
    program.write_text(STUBBORN)
    stack = ExitStack()
    words = [sys.executable, str(program), "parent"]
    process = stack.enter_context(started(words, stdout=subprocess.PIPE, text=True))
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["ready\n", "ready\n"]
    kept = os.dup(process.stdout.fileno())
    with pytest.raises(subprocess.TimeoutExpired):
        stack.close()
    assert process.returncode == -signal.SIGKILL
    with os.fdopen(kept) as pipe:
        assert pipe.read() == ""  # comes only when nobody is left to write


def test_a_service_that_was_there_before_is_not_taken_for_the_one_that_was_started(
    service: Service, database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "free_port", lambda: urlsplit(service.url).port)
    with pytest.raises(AssertionError, match="did not start"), running_service(database_url, folder):
        pass
