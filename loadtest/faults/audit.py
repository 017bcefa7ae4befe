"""What is looked at when the load has ended: the histories, the rows, the nodes, the trail."""

import dataclasses
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pymysql

from loadtest.database import Database, Unreadable
from loadtest.faults.clients import FIRST_USER, USERS_OF_A_SEED
from loadtest.faults.nemesis import Database as Servers
from loadtest.faults.replicas import CUPO, bare_environment
from loadtest.linearizability import Operation, Violation, check

LOOKING_AT_ROWS = "the rows at the end"
AUDIT_SECONDS, SETTLE_SECONDS, POLL_SECONDS = 300, 60, 0.2
APP, DATABASE = "cupo", "cupo"


@dataclasses.dataclass(frozen=True)
class Findings:
    """`differing` names the tables that are not the same on all nodes, `trail` is what `cupo audit` said if
    it found anything, `unread` why something could not be looked at."""

    users: int
    rows: int
    unknown: int
    violations: tuple[Violation, ...]
    undecided: tuple[int, ...]
    nodes: int
    differing: tuple[str, ...]
    trail: str
    unread: str = ""


def users_of(seed: int) -> range:
    first = FIRST_USER + seed * USERS_OF_A_SEED
    return range(first, first + USERS_OF_A_SEED)


def look_at_rows(database: Database, seed: int, users: Sequence[int]) -> list[Operation]:
    """What is left of each user as one more `list`, whatever was answered. Raises Unreadable."""
    whose = users_of(seed)
    sent = time.perf_counter()
    held = database.rows(whose[0], whose[-1]).by_user()
    finished = time.perf_counter()
    look = Operation(0, LOOKING_AT_ROWS, "list", sent, finished, status=200)
    look = Operation(0, LOOKING_AT_ROWS, "list", sent, finished, status=200)
    users = sorted({*users, *held})
    return [look._replace(user=user, seen=tuple(sorted(held.get(user, [])))) for user in users]


def audit(
    operations: Sequence[Operation], limit: int, servers: Servers | None, settings: Mapping[str, str]
) -> Findings:
    """`operations` end with the look at the rows."""
    found = check(operations, limit=limit)
    looks = [one for one in operations if one.process == LOOKING_AT_ROWS]
    unread, trail = "", ""
    differing: list[str] = []
    try:
        differing = differing_tables(servers) if servers else []
        trail = said_by_cupo_audit(settings)
    except (Unreadable, pymysql.MySQLError) as error:
        unread = str(error)
    return Findings(
        users=len(looks),
        rows=sum(len(look.seen) for look in looks),
        unknown=sum(one.unknown for one in operations),
        violations=found.violations,
        undecided=found.undecided,
        nodes=len(servers.nodes) if servers else 1,
        differing=tuple(differing),
        trail=trail,
        unread=unread,
    )


def wait_until_settled(servers: Servers) -> None:
    """The service's sessions are gone from every node, so that what was to happen has happened, and each node
    has applied it, if they will ever agree. Raises Unreadable.
    """
    give_up_at = time.monotonic() + SETTLE_SECONDS
    while any(user == APP for node in servers.nodes for _, user, *_ in node.run("SHOW PROCESSLIST")):
        if time.monotonic() > give_up_at:
            raise Unreadable(f"sessions of the service are still there {SETTLE_SECONDS} s after its end")
        time.sleep(POLL_SECONDS)
    differing_tables(servers)


def differing_tables(servers: Servers) -> list[str]:
    """Nodes that are still to apply what others committed get a moment for it."""
    give_up_at = time.monotonic() + SETTLE_SECONDS
    while True:
        by_node = [_checksums(node.run) for node in servers.nodes]
        differing = sorted(name for name in by_node[0] if len({found[name] for found in by_node}) > 1)
        if not differing or time.monotonic() > give_up_at:
            return differing
        time.sleep(POLL_SECONDS)


def _checksums(run: Callable[[str], list[tuple[Any, ...]]]) -> dict[str, int]:
    """Of the rows of each table, which no order of rows changes."""
    names = sorted(name for (name, *_) in run(f"SHOW TABLES FROM `{DATABASE}`"))
    tables = ", ".join(f"`{DATABASE}`.`{name}`" for name in names)
    return {str(name): int(checksum) for name, checksum in run(f"CHECKSUM TABLE {tables} EXTENDED")}


def said_by_cupo_audit(settings: Mapping[str, str]) -> str:
    """Nothing where the trail, replayed, leads to the rows. Raises Unreadable where it could not look."""
    ended = subprocess.run(  # noqa: S603 - our own words
        (*CUPO, "audit"),
        env={**bare_environment(), **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=AUDIT_SECONDS,
        check=False,
    )
    if ended.returncode not in (0, 1):
        raise Unreadable(f"cupo audit could not look: {ended.stdout.strip()}")
    return ended.stdout.strip() if ended.returncode else ""
