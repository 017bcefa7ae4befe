"""How many servers, connections and dollars so many users take: by what was measured, and what is assumed."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import BadUse
from bench.scenarios import CUPO_1, CUPO_2, ONE_BY_ONE, C

if TYPE_CHECKING:
    from bench.result import Result
    from bench.row_sizes import RowSizes

USERS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
DAY_SECONDS = 86_400
YEAR_SECONDS = 365 * DAY_SECONDS
GB = 1e9
US = 1e6
CONNECTIONS = "connections"


@dataclass(frozen=True)
class Assumptions:
    """What nobody can measure for you. Prices are in dollars a month."""

    devices_per_user: float = 3
    bytes_of_text: float = 120
    registrations_per_user_and_day: float = 1
    heartbeats_per_user_and_day: float = 4
    reads_per_user_and_day: float = 1
    events_per_user_and_year: float = 4
    peak_factor: float = 5
    years_kept: float = 3
    page_fill: float = 0.7
    events_in_memory: float = 0.1
    utilization: float = 0.5
    memory_for_pool: float = 0.75
    copies: int = 3
    copy_mb_per_second: float = 100
    pool_size: int = 10
    pool_of_groups: int = 4
    connection_of_readyz: int = 1
    workers: int = 2
    service_processes_at_least: int = 2
    processors_at_least: int = 2
    primary_processors: int = 32
    primary_pool_gb: float = 128
    primary_disk_gb: float = 1000
    primary_connections: int = 2000
    primary_writes_per_second: float = 5000
    price_of_processor: float = 25
    price_of_memory_gb: float = 3
    price_of_disk_gb: float = 0.1

    @property
    def calls_per_user_and_day(self) -> float:
        return self.writes_per_user_and_day + self.reads_per_user_and_day

    @property
    def writes_per_user_and_day(self) -> float:
        return self.registrations_per_user_and_day + self.heartbeats_per_user_and_day


@dataclass(frozen=True)
class Cost:
    """Processor time of one registration, in microseconds."""

    service_us: float
    database_us: float


@dataclass(frozen=True)
class Measured:
    """`grouped` is at 32 connections; `single` at one, a transaction for each call, as by `single_by`.

    `statements_per_second` is what the database did on that machine, asked by 32 threads from C.
    """

    grouped: Cost
    single: Cost
    single_by: str
    statements_per_second: float | None
    process_mb: float
    rows: RowSizes


@dataclass(frozen=True)
class Step:
    """What so many users take at their peak. `limits` says which part of one primary's each would be."""

    users: int
    calls_per_second: float
    events_per_second: float
    processes: int
    connections: int
    disk_gb: float
    pool_gb: float
    shards: int
    copy_hours: float
    processors: int
    dollars: float
    limits: dict[str, float]

    @property
    def nearest_limit(self) -> str:
        return max(self.limits, key=lambda name: self.limits[name])


def measured(result: Result, rows: RowSizes) -> Measured:
    """Raises BadUse where the result has no valid run of what is needed."""
    by_one_call = ONE_BY_ONE if _cost(result, "latency", ONE_BY_ONE.name) else CUPO_1
    grouped = _cost(result, "spread-32", CUPO_2.name)
    single = _cost(result, "latency", by_one_call.name)
    if grouped is None or single is None or result.memory is None:
        raise BadUse("the result has no valid run of spread-32, latency and memory")
    alone = [one.rate for one in result.samples_of("spread-32", C.name) if one.failure is None]
    most = statistics.median(alone) if alone else None
    return Measured(grouped, single, by_one_call.title, most, result.memory.peak_mb, rows)


def _cost(result: Result, scenario: str, contestant: str) -> Cost | None:
    valid = [one for one in result.samples_of(scenario, contestant) if one.failure is None]
    if not valid:
        return None
    service = statistics.median(one.service_us for one in valid)
    return Cost(service, statistics.median(one.database_us for one in valid))


def step(users: int, known: Measured, assumed: Assumptions) -> Step:
    """On one primary where it can bear them, else on a power of two of them, by single transactions."""
    peak = users / DAY_SECONDS * assumed.peak_factor
    calls = peak * assumed.calls_per_user_and_day
    disk_gb, pool_gb = _sizes_gb(users, known.rows.bytes_per_row, assumed)
    limits = _limits(calls, disk_gb, pool_gb, known, assumed)
    # Pools can be made smaller, so connections alone ask for no second primary.
    shards = 2 ** math.ceil(math.log2(max(1, *(limits[name] for name in limits if name != CONNECTIONS))))
    cost = known.grouped if shards == 1 else known.single
    processes = _processes(calls, cost, assumed)
    each = max(assumed.processors_at_least, math.ceil(_busy(calls, cost.database_us, assumed) / shards))
    processors = processes + each * shards * assumed.copies
    memory_gb = processes * known.process_mb / 1000 + assumed.copies * pool_gb / assumed.memory_for_pool
    return Step(
        users=users,
        calls_per_second=calls,
        events_per_second=users * assumed.events_per_user_and_year / YEAR_SECONDS * assumed.peak_factor,
        processes=processes,
        connections=_connections(processes, assumed, grouped=shards == 1),
        disk_gb=disk_gb,
        pool_gb=pool_gb,
        shards=shards,
        copy_hours=disk_gb / shards * GB / (assumed.copy_mb_per_second * 1e6) / 3600,
        processors=processors,
        dollars=processors * assumed.price_of_processor
        + memory_gb * assumed.price_of_memory_gb
        + assumed.copies * disk_gb * assumed.price_of_disk_gb,
        limits=limits,
    )


def _limits(
    calls: float, disk_gb: float, pool_gb: float, known: Measured, assumed: Assumptions
) -> dict[str, float]:
    """What of each all would take of one primary, as parts of what it may have."""
    writes = calls * assumed.writes_per_user_and_day / assumed.calls_per_user_and_day
    connections = _connections(_processes(calls, known.grouped, assumed), assumed, grouped=True)
    return {
        "writes": writes / assumed.primary_writes_per_second,
        "processors": _busy(calls, known.grouped.database_us, assumed) / assumed.primary_processors,
        "buffer pool": pool_gb / assumed.primary_pool_gb,
        "disk": disk_gb / assumed.primary_disk_gb,
        CONNECTIONS: connections / assumed.primary_connections,
    }


def _busy(calls: float, each_us: float, assumed: Assumptions) -> float:
    """Processors for that, with what is to be left idle at the peak."""
    return calls * each_us / US / assumed.utilization


def _processes(calls: float, cost: Cost, assumed: Assumptions) -> int:
    """One uses one processor."""
    return max(assumed.service_processes_at_least, math.ceil(_busy(calls, cost.service_us, assumed)))


def _connections(processes: int, assumed: Assumptions, *, grouped: bool) -> int:
    each = assumed.pool_size + assumed.connection_of_readyz + (assumed.pool_of_groups if grouped else 0)
    return processes * each + assumed.workers * assumed.pool_size


def _sizes_gb(users: int, row: dict[str, float], assumed: Assumptions) -> tuple[float, float]:
    """On disk after the years that events are kept, and of it in memory."""
    rows = users / assumed.page_fill / GB
    device, event = row["devices"] + assumed.bytes_of_text, row["events"] + assumed.bytes_of_text
    of_devices = rows * (row["device_registration_locks"] + assumed.devices_per_user * device)
    of_events = rows * assumed.events_per_user_and_year * assumed.years_kept * event
    return of_devices + of_events, of_devices + of_events * assumed.events_in_memory
