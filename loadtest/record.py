"""A run as it is kept: what was asked for, what was found, and the verdict on it."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

from loadtest.client import Sample
from loadtest.errors import BadUse
from loadtest.invariants import Audit, Violation
from loadtest.samples import by_answer, read_samples, write_samples

SAMPLES, RECORD, PAGE = "samples.jsonl", "run.json", "report.html"
NAMED_USERS = 20

State = Literal["holds", "broken", "unproven"]
EXIT_STATUS: dict[State, int] = {"holds": 0, "broken": 1, "unproven": 2}


@dataclasses.dataclass(frozen=True)
class Record:
    """`facts` are for people, in order, without secrets. `on_time` counts the calls sent before the schedule
    ended (in a race: all that were sent); `rate` is the plan's, per second, 0 for a race."""

    kind: Literal["race", "steady"]
    limit: int
    users: int
    planned: int
    unsent: int
    on_time: int
    interrupted: bool
    rate: float
    seconds: float
    facts: dict[str, str]
    audit: Audit

    @property
    def sent_of_planned(self) -> float:
        return self.on_time / self.planned


@dataclasses.dataclass(frozen=True)
class Verdict:
    state: State
    headline: str
    reasons: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.state]


def verdict(record: Record, samples: list[Sample]) -> Verdict:
    """A violation outweighs an unfinished audit, which outweighs everything that looks well."""
    audit = record.audit
    if audit.violations:
        over = sorted({v.user for v in audit.violations if v.kind == "over_limit"})
        headline = f"The limit was broken for {_users(len(over))}" if over else "Answers and rows disagree"
        return Verdict("broken", headline, _named(audit))
    if audit.unread:
        return Verdict("unproven", "Nothing is proven", (audit.unread,))
    registers = [s for s in samples if s.action in ("register", "repeat")]
    if not any(s.status in (200, 201, 409) for s in registers):
        return Verdict("unproven", "Nothing is proven", ("no register call had a usable answer",))
    return Verdict("holds", "The limit held", _praise(record, samples))


def _named(audit: Audit) -> tuple[str, ...]:
    """One line per user, the first ones; the record has them all."""
    lines = []
    for user in audit.offenders[:NAMED_USERS]:
        found = [v for v in audit.violations if v.user == user]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        lines.append(f"user {user}: {found[0].kind.replace('_', ' ')}: {found[0].detail}{more}")
    if len(audit.offenders) > NAMED_USERS:
        lines.append(f"and {len(audit.offenders) - NAMED_USERS:,} more users, see {RECORD}")
    return tuple(lines)


def _praise(record: Record, samples: list[Sample]) -> tuple[str, ...]:
    audit = record.audit
    counts = {answer.label: len(group) for answer, group in by_answer(samples).items()}
    calls = f"{len(samples):,} calls for {_users(audit.users)}, limit {record.limit}"
    lines = [
        f"{calls}: nobody has more than {audit.fullest}, {audit.rows:,} rows in all",
        "; ".join(f"{count:,} × {label}" for label, count in counts.items()),  # noqa: RUF001 - times
        "every 201 has its one row or a later 204, every row its 201; quotas and lists agree with the rows",
    ]
    if audit.uncertain:
        lines.append(f"{audit.uncertain:,} calls had no usable answer: whatever they did was allowed for")
    if record.interrupted:
        lines.append(f"ended early: {record.unsent:,} of {record.planned:,} calls were not sent")
    return tuple(lines)


def _users(count: int) -> str:
    return f"{count:,} user{'' if count == 1 else 's'}"


def write(folder: Path, record: Record, samples: list[Sample]) -> None:
    write_samples(folder / SAMPLES, samples)
    text = json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[Record, list[Sample]]:
    """Raises BadUse where the folder does not hold a run."""
    path = folder / RECORD
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        audit = found.pop("audit")
        violations = tuple(Violation(**violation) for violation in audit.pop("violations"))
        record = Record(**found, audit=Audit(**audit, violations=violations))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadUse(f"{path} cannot be read as a run: {error}") from error
    return record, read_samples(folder / SAMPLES)
