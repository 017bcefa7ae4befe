"""The whole run: one server for all, each scenario in turn."""

from __future__ import annotations

import datetime
import os
import platform
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.contestants import Scene, build
from bench.database import databases, make_key, shared_server
from bench.errors import NotRun
from bench.fill import fill
from bench.load import wrk
from bench.measure import measure
from bench.memory import measure_memory
from bench.result import Result
from bench.scenarios import CUPO_1, MEMORY, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.plan import Plan
    from bench.scenarios import Contestant, Scenario
    from tests.servers import Server

    Say = Callable[[str], None]

KINDS = {"mariadb": "MariaDB", "mysql": "MySQL"}


def new_result(command: str, plan: Plan, scenarios: tuple[str, ...]) -> Result:
    return Result(
        command=command,
        plan=plan,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        processors=len(os.sched_getaffinity(0)),
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        scenarios=list(scenarios),
    )


def run(result: Result, say: Say) -> None:
    """Measure what `result` asks for into it: it holds what was done, whenever this ends. Raises BadUse."""
    wrk()
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in result.scenarios]
    contestants = {one for scenario in scenarios for one in scenario.contestants}
    if MEMORY.name in result.scenarios:
        contestants.add(CUPO_1)
    wanted = {one.database for one in contestants}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cupo-bench-")))
        server = stack.enter_context(shared_server(result.plan))
        result.database = name_of(server)
        say(f"on {result.database}, port {server.port}")
        stack.enter_context(databases(server, wanted))
        scene = Scene(server, folder, {name: make_key(server, name) for name in wanted - {"peer"}})
        _build_all(scene, contestants, result, say)
        if "filled" in wanted:
            say(f"fills a database: {result.plan.filled_devices:,} devices")
            fill(server, result.plan)
        for scenario in scenarios:
            _measure_all(scene, result, scenario, say)
        if MEMORY.name in result.scenarios:
            say(f"{MEMORY.name}, {result.plan.memory_seconds} s")
            _measure_memory(scene, result, say)


def name_of(server: Server) -> str:
    """Without what its packagers have put behind the version."""
    return f"{KINDS[server.kind]} {server.version.partition('-')[0]}"


def _build_all(scene: Scene, contestants: set[Contestant], result: Result, say: Say) -> None:
    for program in sorted({one.program for one in contestants}):
        try:
            build(scene, program)
        except NotRun as reason:
            for contestant in (one for one in contestants if one.program == program):
                _leave_out(result, contestant.name, reason, say)


def _measure_all(scene: Scene, result: Result, scenario: Scenario, say: Say) -> None:
    for number, contestant in result.plan.turns(scenario):
        if contestant.name in result.not_run:
            continue
        try:
            sample = measure(scene, result.plan, scenario, contestant, number)
        except NotRun as reason:
            _leave_out(result, contestant.name, reason, say)
            continue
        result.samples.append(sample)
        told = sample.failure or f"{sample.rate:,.0f} answers/s, p50 {sample.p50_ms or 0:.2f} ms"
        say(f"{scenario.name}, round {number + 1} of {result.plan.rounds}, {contestant.name}: {told}")


def _measure_memory(scene: Scene, result: Result, say: Say) -> None:
    try:
        result.memory = measure_memory(scene, result.plan, MEMORY)
    except NotRun as reason:
        _leave_out(result, MEMORY.name, reason, say)


def _leave_out(result: Result, name: str, reason: NotRun, say: Say) -> None:
    result.not_run[name] = str(reason)
    say(f"NOT MEASURED: {name}: {reason}")
