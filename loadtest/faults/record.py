"""A run as it is kept, and the verdict on it."""

import dataclasses
import json
from pathlib import Path

from loadtest.faults.audit import LOOKING_AT_ROWS, Findings
from loadtest.faults.outages import Outage
from loadtest.linearizability import Violation
from loadtest.record import NAMED_USERS, Verdict

RECORD = "faults.json"


@dataclasses.dataclass(frozen=True)
class Record:
    """`begin` is the first call's instant on the clock of the operations and of what struck, `seconds` from
    there. `facts` are for people, in order, without secrets."""

    topology: str
    limit: int
    seconds: float
    calls: int
    begin: float
    outages: tuple[Outage, ...]
    findings: Findings
    facts: dict[str, str]


def write(folder: Path, record: Record) -> None:
    """The histories that no order explains as people read them; the calls themselves are in the folder."""
    without = dataclasses.replace(record.findings, violations=())
    found = dataclasses.asdict(dataclasses.replace(record, findings=without))
    found["findings"]["violations"] = [str(violation) for violation in record.findings.violations]
    text = json.dumps(found, indent=2, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def verdict(record: Record) -> Verdict:
    """What was found outweighs what could not be looked at, which outweighs everything that looks well."""
    found = record.findings
    if broken := _broken(found):
        return Verdict("broken", "Answers, rows and nodes do not fit", broken)
    if unproven := _unproven(record):
        return Verdict("unproven", "Nothing is proven", unproven)
    return Verdict("holds", "Every history is linearizable", _praise(record))


def _broken(found: Findings) -> tuple[str, ...]:
    lines = [f"{_of_what(violation)}: {violation.headline}" for violation in found.violations[:NAMED_USERS]]
    if len(found.violations) > NAMED_USERS:
        lines.append(f"and {len(found.violations) - NAMED_USERS:,} more users, see {RECORD}")
    lines += [f"the nodes differ in {table}" for table in found.differing]
    if found.trail:
        lines.append(f"cupo audit: {found.trail}")
    return tuple(lines)


def _of_what(violation: Violation) -> str:
    """Where the answers alone fit, something that was acknowledged is lost, or something refused is there."""
    if violation.impossible.process == LOOKING_AT_ROWS:
        return "the rows are not what was answered"
    return "no order explains the answers"


def _unproven(record: Record) -> tuple[str, ...]:
    found = record.findings
    lines = [found.unread] if found.unread else []
    if found.undecided:
        users = ", ".join(map(str, found.undecided[:NAMED_USERS]))
        lines.append(f"{len(found.undecided):,} users could not be decided within the bound on work: {users}")
    # Who never comes back breaks nothing.
    if not record.outages:
        lines.append("no fault was worked")
    elif record.outages[-1].any_write >= record.seconds + record.begin - record.outages[-1].struck.began:
        lines.append(f"nothing was written after the last fault, {record.outages[-1].struck.fault}")
    return tuple(lines)


def _praise(record: Record) -> tuple[str, ...]:
    found = record.findings
    nodes = f"all {found.nodes} nodes hold the same rows; " if found.nodes > 1 else ""
    calls = f"{record.calls:,} calls for {found.users:,} users, {found.unknown:,} of unknown outcome"
    return (
        f"{calls}: for each user an order of the calls explains every answer",
        f"{found.rows:,} rows at the end: nothing acknowledged is lost, nothing refused is there",
        f"{nodes}the trail replays to the rows",
    )
