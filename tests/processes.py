"""Processes that tests start: each ends with the `with` that started it, whatever became of the test."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STOP_SECONDS = 60  # enough for a process that gets hardly any processor time


@contextmanager
def started(command: Sequence[str | Path], **how: Any) -> Iterator[subprocess.Popen[Any]]:
    """`how` as for Popen. A process that still runs at the end is ended by SIGTERM.

    One that does not end by it is killed with all that it has started; then raises TimeoutExpired.
    """
    # A session of its own: what it starts can be killed with it.
    process = subprocess.Popen(command, start_new_session=True, **how)  # noqa: S603 - our own commands
    try:
        yield process
    finally:
        try:
            process.send_signal(signal.SIGCONT)  # a process that was paused keeps SIGTERM waiting
            process.terminate()
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def processor_seconds(pid: int) -> float:
    """Of the process, in user mode and in the kernel (proc(5), /proc/pid/stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
