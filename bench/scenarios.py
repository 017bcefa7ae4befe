"""The loads, who is put under each, and what Cupo has to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.errors import BadUse

Load = Literal["SPREAD", "HOT"]
Program = Literal["cupo", "naive", "go", "c"]
Database = Literal["own", "filled", "peer"]


@dataclass(frozen=True)
class Contestant:
    """One way to register devices.

    `parameters` end the URL of its database; `settings` are further variables of its environment.
    """

    name: str
    title: str
    program: Program
    database: Database = "peer"
    workers: int = 1
    parameters: str = ""
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """Cupo's contestants, the best of which counts, beside another one. Of a p50, less is better.

    `at_least` and `at_most` bound the ratio of Cupo's median to the other one's; a row without is for
    information. `against` is the other one's title, where that says too little.
    """

    ours: tuple[str, ...]
    theirs: str
    against: str = ""
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Scenario:
    """`title` may name what of the plan it depends on, as `str.format` does."""

    name: str
    title: str
    load: Load
    connections: int
    contestants: tuple[Contestant, ...]
    rows: tuple[Row, ...]
    measure: Literal["rate", "p50_ms"] = "rate"
    has_room: bool = False  # a limit that the users of the filled database do not reach


@dataclass(frozen=True)
class MemoryScenario:
    """One service process under load, for long."""

    name: str = "memory"
    title: str = "SPREAD, 32 connections, memory of one service process"
    connections: int = 32
    most_mb: float = 150
    most_growth_mb: float = 5  # in ten minutes
    judged_from_seconds: int = 300


CUPO_1 = Contestant("cupo-1", "Cupo, 1 worker", "cupo", "own", workers=1)
CUPO_2 = Contestant("cupo-2", "Cupo, 2 workers", "cupo", "own", workers=2)
ONE_BY_ONE = Contestant(
    "cupo-ungrouped", "Cupo, one transaction per call", "cupo", "own", settings=(("CUPO_GROUP_SIZE", "1"),)
)
FILLED = Contestant("cupo-filled", "Cupo, filled database", "cupo", "filled", workers=2)
NAIVE = Contestant("naive", "the published pseudo-code in FastAPI", "naive")
GO = Contestant("go", "Go, `interpolateParams=true`", "go", parameters="?interpolateParams=true")
GO_DEFAULT = Contestant("go-default", "Go, the driver's default", "go")
C = Contestant("c", "the statements from C, no HTTP", "c")

BOTH = (CUPO_1.name, CUPO_2.name)

SCENARIOS = (
    Scenario(
        "spread-32",
        "SPREAD, 32 connections",
        "SPREAD",
        32,
        (CUPO_1, CUPO_2, NAIVE, GO, GO_DEFAULT, C),
        (
            Row(BOTH, NAIVE.name, at_least=7),
            Row(BOTH, GO.name, at_least=1.3),
            Row(BOTH, GO_DEFAULT.name),
            Row(BOTH, C.name, at_least=0.65),
        ),
    ),
    Scenario(
        "spread-128",
        "SPREAD, 128 connections",
        "SPREAD",
        128,
        (CUPO_1, CUPO_2, GO),
        (Row(BOTH, GO.name, at_least=1.3),),
    ),
    Scenario(
        "hot",
        "HOT, 32 connections",
        "HOT",
        32,
        (CUPO_1, CUPO_2, GO),
        (Row(BOTH, GO.name, at_least=2),),
    ),
    Scenario(
        "latency",
        "SPREAD, 1 connection, latency p50",
        "SPREAD",
        1,
        (CUPO_1, ONE_BY_ONE),
        (Row((CUPO_1.name,), ONE_BY_ONE.name, "one transaction per call", at_most=1.05),),
        measure="p50_ms",
    ),
    Scenario(
        "filled",
        "SPREAD, 32 connections, {filled_devices:,} devices of {filled_users:,} users there",
        "SPREAD",
        32,
        (FILLED, CUPO_2),
        (Row((FILLED.name,), CUPO_2.name, "the same on an empty database", at_least=0.9),),
        has_room=True,
    ),
)
MEMORY = MemoryScenario()
NAMES = (*(scenario.name for scenario in SCENARIOS), MEMORY.name)
CONTESTANTS = {one.name: one for scenario in SCENARIOS for one in scenario.contestants}


def chosen(only: str | None, *, is_quick: bool) -> tuple[str, ...]:
    """The names of `--only`, in the order of the table. Without it all but the one that takes ten minutes.

    A quick trial is of everything.
    """
    if only is None:
        return NAMES if is_quick else tuple(name for name in NAMES if name != MEMORY.name)
    asked = set(only.split(","))
    unknown = asked - {*NAMES, "all"}
    if unknown:
        raise BadUse(f"no scenario {min(unknown)!r}: there are {', '.join(NAMES)}, and all")
    return tuple(name for name in NAMES if asked & {name, "all"})
