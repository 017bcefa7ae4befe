"""The resident memory of one service process under load."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from bench import load
from bench.contestants import serving
from bench.database import empty
from bench.measure import LIMIT, PROBED_USERS, strange_answers
from bench.processes import largest_resident_bytes
from bench.result import Memory
from bench.scenarios import CUPO_1
from bench.statistics import slope
from tests.processes import started

if TYPE_CHECKING:
    from bench.contestants import Scene
    from bench.plan import Plan
    from bench.scenarios import MemoryScenario

MB = 1e6
SAMPLES_AT_LEAST = 20


def measure_memory(scene: Scene, plan: Plan, scenario: MemoryScenario) -> Memory:
    """Of one worker, from before its first call on. Raises NotRun."""
    empty(scene.server, CUPO_1.database)
    points: list[tuple[float, float]] = []
    with serving(scene, CUPO_1, LIMIT) as service:
        start_mb = largest_resident_bytes(service.session) / MB
        failure = strange_answers(service, PROBED_USERS, LIMIT)
        with started(
            load.command(service.url, scenario.connections, plan.memory_seconds),
            env=load.environment("SPREAD", service.token),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as wrk:
            began_at = time.monotonic()
            while wrk.poll() is None:
                points.append((time.monotonic() - began_at, largest_resident_bytes(service.session) / MB))
                time.sleep(min(1.0, plan.memory_seconds / SAMPLES_AT_LEAST))
            assert wrk.stdout is not None  # noqa: S101 - it is a pipe
            answers = load.parse(wrk.stdout.read(), plan.memory_seconds)
    if answers.broken:
        failure = f"{answers.broken} broken or unanswered calls"
    return summary(points, plan.memory_seconds, start_mb, failure)


def summary(
    points: list[tuple[float, float]], seconds: int, start_mb: float, failure: str | None = None
) -> Memory:
    """The second half tells of growth: the first has the pool, the caches and the threads filled."""
    second_half = [point for point in points if point[0] >= seconds / 2]
    return Memory(
        seconds=seconds,
        start_mb=start_mb,
        end_mb=points[-1][1],
        peak_mb=max(mb for _, mb in points),
        growth_mb_per_10_minutes=slope(second_half) * 600,
        failure=failure,
    )
