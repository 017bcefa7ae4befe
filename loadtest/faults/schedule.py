"""When which fault comes: `kill-database@10s:2s, pause-database#2@30s:10s, kill-worker@45s`.

A fault is its kind, the number of the node or replica that it strikes (from 1; without one, the node that
takes the writes, or the replica whose turn it is), the second in which it comes, and how long it lasts.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from loadtest.errors import BadUse
from loadtest.plan import parse_seconds

Topology = Literal["single", "galera", "group-replication", "given"]

QUIET_SECONDS = 5.0  # after the last fault, and between two rounds of a schedule


class Kind(NamedTuple):
    """What a fault does. One that `lasts` is undone when its time is over, any other undoes itself."""

    does: str
    lasts: bool
    strikes: Literal["database", "replica"]


KINDS: Mapping[str, Kind] = {
    "kill-database": Kind("kill -9 of the database server, which is started again", True, "database"),
    "restart-database": Kind("an orderly stop (SIGTERM), and a start", True, "database"),
    "pause-database": Kind("SIGSTOP: connections stay open and nothing answers", True, "database"),
    "partition": Kind("nothing reaches the node, and nothing leaves it", True, "database"),
    "partition-in": Kind("nothing reaches the node; what it sends arrives", True, "database"),
    "partition-out": Kind("nothing leaves the node; what is sent to it arrives", True, "database"),
    "fill-log-disk": Kind("no room is left where the server writes its log", True, "database"),
    "change-primary": Kind("another node takes the writes", False, "database"),
    "kill-worker": Kind("kill -9 of one process of a replica", False, "replica"),
    "pause-worker": Kind("SIGSTOP of one process of a replica, which keeps its locks", True, "replica"),
    "kill-replica": Kind("kill -9 of a replica's first process", True, "replica"),
    "stop-replica": Kind("SIGTERM to a replica: what is under way is finished", True, "replica"),
    "clock-step": Kind("a replica's clock is a day ahead", True, "replica"),
}
OF_REPLICAS = frozenset(name for name, kind in KINDS.items() if kind.strikes == "replica")
OF_ONE_SERVER = frozenset({"kill-database", "restart-database", "pause-database", "fill-log-disk"})
OF_CLUSTERS = frozenset(KINDS) - OF_REPLICAS - {"fill-log-disk"}

# What each topology can have done to it.
POSSIBLE: Mapping[Topology, frozenset[str]] = {
    "given": OF_REPLICAS,
    "single": OF_REPLICAS | OF_ONE_SERVER,
    "galera": OF_REPLICAS | OF_CLUSTERS - {"change-primary"},
    "group-replication": OF_REPLICAS | OF_CLUSTERS,
}
_ON_REPLICAS = "kill-worker@{0}s, stop-replica@{1}s:3s, kill-replica@{2}s:3s, pause-worker@{3}s:12s"
# The schedules that have a name, by it.
NAMED: Mapping[str, str] = {
    "given": _ON_REPLICAS.format(5, 15, 25, 35),
    "short": "kill-database@2s:1s, pause-database@6s:2s, kill-worker@10s, stop-replica@12s:1s",
    "single": "kill-database@5s:2s, pause-database@20s:10s, restart-database@45s:1s, clock-step@60s:10s, "
    + _ON_REPLICAS.format(80, 90, 105, 120)
    + ", fill-log-disk@150s:8s",
    "galera": "kill-database@5s:5s, pause-database#2@30s:10s, partition#1@60s:15s, partition-in#3@95s:15s, "
    "partition-out#2@130s:15s, restart-database#3@165s:2s, clock-step@190s:10s, "
    + _ON_REPLICAS.format(210, 220, 230, 240),
    "group-replication": "kill-database@5s:5s, change-primary@40s, pause-database@50s:10s, "
    "partition@90s:15s, partition-in@130s:15s, partition-out@170s:15s, restart-database@210s:2s, "
    "clock-step@235s:10s, " + _ON_REPLICAS.format(250, 258, 266, 274),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """`at` and `lasting` in seconds, the latter 0 if it undoes itself. `target` from 1; None: chosen."""

    kind: str
    target: int | None
    at: float
    lasting: float

    @property
    def on_replica(self) -> bool:
        return KINDS[self.kind].strikes == "replica"

    @property
    def lasts(self) -> bool:
        return KINDS[self.kind].lasts

    def __str__(self) -> str:
        target = "" if self.target is None else f"#{self.target}"
        lasting = f":{self.lasting:g}s" if self.lasts else ""
        return f"{self.kind}{target}@{self.at:g}s{lasting}"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The faults in the order in which they come, and how long the load goes on, in seconds."""

    faults: tuple[Fault, ...]
    seconds: float

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(fault.kind for fault in self.faults)

    def for_seconds(self, seconds: float) -> "Schedule":
        """The same faults round after round; only rounds that end in time begin."""
        rounds = max(1, int(seconds / self.seconds))
        again = [
            dataclasses.replace(fault, at=fault.at + n * self.seconds)
            for n in range(rounds)
            for fault in self.faults
        ]
        return Schedule(tuple(again), max(seconds, self.seconds))


def parse_schedule(text: str, topology: Topology) -> Schedule:
    """A named schedule, or faults with commas between them. Raises BadUse, in one line."""
    written = NAMED.get(text, text)
    faults = sorted((_fault(word) for word in written.split(",") if word.strip()), key=lambda fault: fault.at)
    if not faults:
        raise BadUse(f"--schedule {text!r} has no fault: write kill-database@10s:2s, or {_any_of(NAMED)}")
    impossible = sorted({fault.kind for fault in faults} - POSSIBLE[topology])
    if impossible:
        raise BadUse(f"{impossible[0]} cannot be had on {topology}: {_any_of(POSSIBLE[topology])}")
    return Schedule(tuple(faults), max(fault.at + fault.lasting for fault in faults) + QUIET_SECONDS)


def _fault(word: str) -> Fault:
    found = re.fullmatch(r"\s*([a-z-]+)(?:#([1-9]\d*))?@([^:\s]+)(?::(\S+))?\s*", word)
    if found is None:
        raise BadUse(
            f"--schedule {word.strip()!r} is no fault: write kill-database@10s:2s, or {_any_of(NAMED)}"
        )
    kind, target, at, lasting = found.groups()
    if kind not in KINDS:
        raise BadUse(f"--schedule {kind!r} is not known: {_any_of(KINDS)}")
    if KINDS[kind].lasts != (lasting is not None):
        wanted = f"{kind}@{at}:5s" if KINDS[kind].lasts else f"{kind}@{at}"
        raise BadUse(f"--schedule {word.strip()!r}: write {wanted}")
    return Fault(
        kind,
        int(target) if target else None,
        parse_seconds("--schedule", at),
        parse_seconds("--schedule", lasting) if lasting else 0.0,
    )


def _any_of(names: Mapping[str, object] | frozenset[str]) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} or {last}" if others else last
