"""`python -m loadtest check`: the verdict on the histories of a run that was kept."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from loadtest import elements, page, report
from loadtest.errors import BadUse
from loadtest.linearizability.checking import Checked, check
from loadtest.linearizability.operation import OPERATIONS, read_operations
from loadtest.linearizability.violation import Violation
from loadtest.record import NAMED_USERS, Verdict

PAGE = "histories.html"
RECORDS = ("faults.json", "run.json")


def check_folder(folder: Path, limit: int | None, console: Console) -> int:
    """Tells the verdict, draws what no order explains, and returns the exit status. Raises BadUse."""
    found = check(read_operations(folder / OPERATIONS), _limit_of(folder) if limit is None else limit)
    verdict = verdict_on(found)
    report.print_verdict(verdict, console)
    for violation in found.violations[:NAMED_USERS]:
        console.print(f"\n{violation}", highlight=False, soft_wrap=True, markup=False)
    if found.violations:
        path = folder / PAGE
        title = "Cupo load test: histories"
        parts = [
            f"<h1>{title}</h1>",
            elements.verdict(verdict),
            page.histories(found.violations[:NAMED_USERS]),
        ]
        path.write_text(elements.document(title, parts), encoding="utf-8")
        console.print(f"\ndrawn: {path}", highlight=False, soft_wrap=True, markup=False)
    return verdict.exit_status


def verdict_on(found: Checked) -> Verdict:
    """A violation outweighs what could not be decided, which outweighs everything that looks well."""
    calls = f"{found.operations:,} calls of {found.users:,} users, {found.unknown:,} of unknown outcome"
    undecided = tuple(f"user {user} could not be decided" for user in found.undecided[:NAMED_USERS])
    if found.violations:
        users = len(found.violations)
        headline = f"No order explains what {users:,} user{' was' if users == 1 else 's were'} told"
        return Verdict("broken", headline, (*_named(found.violations), *undecided, calls))
    if found.undecided:
        headline = f"{len(found.undecided):,} users could not be decided within the bound on work"
        return Verdict("unproven", headline, (*undecided, calls))
    if found.operations == found.unknown:
        return Verdict("unproven", "Nothing is proven", ("no call had an answer",))
    return Verdict("holds", "Every history is linearizable", (calls,))


def _named(violations: Sequence[Violation]) -> tuple[str, ...]:
    more = len(violations) - NAMED_USERS
    told = tuple(violation.headline for violation in violations[:NAMED_USERS])
    return (*told, f"and {more:,} users more") if more > 0 else told


def _limit_of(folder: Path) -> int:
    for name in RECORDS:
        path = folder / name
        try:
            if path.exists():
                return int(json.loads(path.read_text(encoding="utf-8"))["limit"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadUse(f"{path} cannot be read as a run: {error}") from error
    raise BadUse(f"{folder} has no record of a run: give --limit, which each user had at the start")
