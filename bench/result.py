"""What a run found, as it is kept in a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.errors import BadUse
from bench.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """One contestant in one round. Rates are answers per second, `…_us` processor time per answer.

    On SPREAD the answers are registrations alone. `others_share` is the part of the processors' time that
    went to work of no contestant. `failure` says what makes the sample worthless.
    """

    scenario: str
    contestant: str
    round: int
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    service_us: float
    database_us: float
    load_us: float
    others_share: float
    failure: str | None = None


@dataclass(frozen=True)
class Memory:
    """Resident memory, in millions of bytes; growth is by the line that fits the second half best."""

    seconds: int
    start_mb: float
    end_mb: float
    peak_mb: float
    growth_mb_per_10_minutes: float
    failure: str | None = None


@dataclass
class Result:
    """`scenarios` are those that were asked for; `not_run` says why one or a contestant was left out."""

    command: str
    plan: Plan
    date: str
    processors: int
    machine: str
    scenarios: list[str]
    database: str = ""
    samples: list[Sample] = field(default_factory=list)
    memory: Memory | None = None
    not_run: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def samples_of(self, scenario: str, contestant: str) -> list[Sample]:
        """By round."""
        found = (one for one in self.samples if (one.scenario, one.contestant) == (scenario, contestant))
        return sorted(found, key=lambda one: one.round)

    def onto(self, kept: Result) -> Result:
        """`kept`, with what this run has measured in place of its own or beside it."""
        is_new = {one.scenario for one in self.samples}
        return replace(
            kept,
            command=f"{kept.command}; {self.command}",
            scenarios=[*dict.fromkeys([*kept.scenarios, *self.scenarios])],
            samples=[one for one in kept.samples if one.scenario not in is_new] + self.samples,
            memory=self.memory or kept.memory,
            not_run={**kept.not_run, **self.not_run},
            interrupted=kept.interrupted or self.interrupted,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def read(file: Path) -> Result:
    """Raises BadUse where the file is none of ours."""
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Result(
            **{
                **kept,
                "plan": Plan(**kept["plan"]),
                "samples": [Sample(**one) for one in kept["samples"]],
                "memory": Memory(**kept["memory"]) if kept["memory"] else None,
            }
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadUse(f"{file} is not a kept result: {error}") from None
