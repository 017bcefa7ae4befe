"""One run of the lab: every chosen strategy under the plan's load, then the interleavings."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loadtest.compare.crew import Crew, Errand, crew
from loadtest.compare.database import audit, lab_database, lacks, lay_tables, seed, server_version
from loadtest.compare.interleavings import INTERLEAVINGS, Shown
from loadtest.compare.measure import Result, result_of
from loadtest.compare.redis_server import forget, private_redis, redis_for, redis_version
from loadtest.compare.scene import Scene
from loadtest.errors import BadUse
from loadtest.strategies import Need, Phase, Strategy
from loadtest.strategies.catalogue import BY_NAME, STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from loadtest.compare.database import Address
    from loadtest.compare.plan import LabPlan

NO_REDIS = "no Redis here"


@dataclass
class LabReport:
    """What a run found, so far as it came."""

    plan: LabPlan
    command: str
    server: str = ""
    redis: str = ""
    machine: str = field(default_factory=lambda: f"{os.cpu_count()} CPUs, Python {platform.python_version()}")
    results: list[Result] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    interrupted: bool = False

    @property
    def surprises(self) -> list[str]:
        """Whatever did not behave as expected, in words."""
        of_results = [words for result in self.results for words in result.surprises]
        return of_results + [shown.surprise for shown in self.shown if shown.surprise]

    @property
    def not_run(self) -> list[Result]:
        return [result for result in self.results if result.not_run]


def chosen(names: Sequence[str]) -> tuple[Strategy, ...]:
    """In the catalogue's order; all of them where none is named."""
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise BadUse(f"no strategy {unknown[0]!r}: there are {', '.join(BY_NAME)}")
    return tuple(strategy for strategy in STRATEGIES if not names or strategy.name in names)


def run_lab(
    report: LabReport,
    address: Address,
    strategies: Sequence[Strategy],
    redis_url: str | None,
    say: Callable[[str], None],
) -> None:
    """Fills the report as it goes, so that what is done is there when the run is interrupted."""
    with_redis = any(strategy.needs is Need.REDIS for strategy in strategies)
    with ExitStack() as stack:
        database = stack.enter_context(lab_database(address, report.plan.callers))
        report.server = server_version(database)
        url = stack.enter_context(redis_for(redis_url)) if with_redis else None
        if with_redis:
            report.redis = NO_REDIS if url is None else redis_version(url)
        hired = stack.enter_context(crew(report.plan))
        lab = _Lab(report.plan, address, database, hired, url)
        for number, strategy in enumerate(strategies, start=1):
            say(f"{number}/{len(strategies)} {strategy.name}")
            report.results.append(lab.try_out(strategy))
        say("interleavings")
        report.shown.extend(play_all(address, database, url, strategies))


@dataclass(frozen=True)
class _Lab:
    plan: LabPlan
    address: Address
    database: Connection[Cursor]
    crew: Crew
    redis_url: str | None

    def try_out(self, strategy: Strategy) -> Result:
        missing = lacks(self.database, strategy)
        if strategy.needs is Need.REDIS:
            if self.redis_url is None:
                missing = NO_REDIS
            else:
                forget(self.redis_url)
        if missing:
            return Result(strategy, not_run=missing)
        lay_tables(self.database, strategy)
        samples, audits = {}, {}
        for phase in Phase:
            user_ids = self.plan.user_ids(phase)
            seed(self.database, strategy, phase, user_ids)
            samples[phase] = self.crew.run(
                Errand(strategy.name, phase, self.plan, self.address, self.redis_url)
            )
            audits[phase] = audit(self.database, strategy, user_ids, self.plan.limit)
        return result_of(strategy, samples, audits, self.plan.users)


def play_all(
    address: Address, database: Connection[Cursor], redis_url: str | None, strategies: Sequence[Strategy]
) -> list[Shown]:
    """The interleavings of these strategies, on a Redis of their own where it can be had: some kill it."""
    tables = {strategy.devices.table for strategy in strategies}
    with ExitStack() as stack:
        server = stack.enter_context(private_redis())
        url = redis_url if server is None else server.url
        scene = Scene(address, database, url, server, stack)
        return [played.run(scene) for played in INTERLEAVINGS if played.strategy.devices.table in tables]
