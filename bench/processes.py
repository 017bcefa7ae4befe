"""What the processes of a contestant use, as the kernel counts it (proc(5))."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Of the fields behind the program's name, which begin with the third of all: session, user time, system time.
_SESSION, _USER, _SYSTEM = 3, 11, 12
_IDLE, _IO_WAIT = 3, 4


@dataclass(frozen=True)
class Process:
    pid: int
    session: int
    processor_seconds: float
    resident_bytes: int


def processes_of_session(session: int) -> Iterator[Process]:
    """Each contestant is started in a session of its own, so this is it and all that it started."""
    return (one for one in _all_processes() if one.session == session)


def processor_seconds(session: int) -> float:
    """Of all processes of the session together, in user mode and in the kernel."""
    return sum(one.processor_seconds for one in processes_of_session(session))


def busy_seconds() -> float:
    """Processor time that anything on the machine has used, or another machine has taken from it."""
    # user, nice, system, idle, iowait, irq, softirq, steal; what follows is in the first two already.
    ticks = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[_IDLE] - ticks[_IO_WAIT]) * _TICK_SECONDS


def largest_resident_bytes(session: int) -> int:
    """Of the session's largest process."""
    return max((one.resident_bytes for one in processes_of_session(session)), default=0)


def filesystem_of(folder: Path) -> str:
    """Its type, as the kernel has it mounted: the longest mount point above the folder is the one."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines())
    resolved = folder.resolve()
    above = [(mount[1], mount[2]) for mount in mounts if resolved.is_relative_to(_unescaped(mount[1]))]
    return max(above, key=lambda mount: len(mount[0]))[1]


def _unescaped(mount_point: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), mount_point)


def _all_processes() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        # OSError: it has just ended.
        with suppress(OSError):
            # The name may have spaces and parentheses in it.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            pages = (folder / "statm").read_text().split()[1]
            ticks = int(fields[_USER]) + int(fields[_SYSTEM])
            yield Process(
                int(folder.name), int(fields[_SESSION]), ticks * _TICK_SECONDS, int(pages) * _PAGE_BYTES
            )
