"""The load generator `wrk`, and what it says."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import BadUse, NotRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.scenarios import Load

SCRIPT = Path(__file__).parent / "peers" / "register.lua"
# An answer that takes longer counts as broken. wrk's own 2 s would call a slow contestant a failing one.
TIMEOUT_SECONDS = 30
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
_TOTALS = re.compile(r"^rps=(\d+) p50_ms=\S+ p99_ms=\S+ not2xx=(\d+) broken=(\d+)$", re.MULTILINE)
_PERCENTILE = r"^ +{}%\s+([\d.]+)(us|ms|s|m) *$"  # units of one letter are padded


@dataclass(frozen=True)
class Answers:
    """What came back in one run. `refused` are the answers that were no 2xx."""

    seconds: int
    per_second: float
    refused: int
    broken: int
    p50_ms: float
    p99_ms: float

    @property
    def total(self) -> float:
        return self.per_second * self.seconds

    @property
    def registered_per_second(self) -> float:
        return self.per_second - self.refused / self.seconds


@dataclass(frozen=True)
class Ended:
    """A program that was run to its end; its processor time is that of all that it waited for."""

    said: str
    processor_seconds: float


def wrk() -> str:
    program = shutil.which("wrk")
    if program is None:
        raise BadUse("no wrk here, which makes the load: install the package wrk")
    return program


def command(url: str, connections: int, seconds: int) -> list[str]:
    """One thread asks more than any contestant here answers. The script chooses users and devices."""
    return [
        wrk(),
        "--threads=1",
        f"--connections={connections}",
        f"--duration={seconds}s",
        f"--timeout={TIMEOUT_SECONDS}s",
        "--latency",  # to two decimals, where the script's own line has one
        f"--script={SCRIPT}",
        url,
    ]


def environment(load: Load, token: str | None) -> Mapping[str, str]:
    return os.environ | {"LOAD": load} | ({"TOKEN": token} if token else {})


def parse(said: str, seconds: int) -> Answers:
    """Raises ValueError where this is not what wrk and its script say."""
    totals = _TOTALS.search(said)
    if totals is None:
        raise ValueError(f"wrk said {said!r}")
    return Answers(
        seconds=seconds,
        per_second=float(totals[1]),
        refused=int(totals[2]),
        broken=int(totals[3]),
        p50_ms=_percentile(said, 50),
        p99_ms=_percentile(said, 99),
    )


def _percentile(said: str, percent: int) -> float:
    found = re.search(_PERCENTILE.format(percent), said, re.MULTILINE)
    if found is None:
        raise ValueError(f"wrk said {said!r}")
    return float(found[1]) * _UNITS_MS[found[2]]


def run_to_its_end(words: Sequence[str], environment: Mapping[str, str], patience_seconds: float) -> Ended:
    """Raises NotRun where it fails or does not end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        ended = subprocess.run(  # noqa: S603 - our own commands
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_seconds,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise NotRun(f"{words[0]} failed: {(error.stderr or error.stdout).strip()}") from None
    except subprocess.TimeoutExpired:
        raise NotRun(f"{words[0]} did not end") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(ended.stdout, used)
