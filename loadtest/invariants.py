"""The audit: what must be true of the rows, of the answers and of both together after a run.

For every user of the run, who had no device before it and whom nobody else touches:

- `over_limit`: more rows than the limit; or, by the answers alone, more devices held at one instant of the
  run than the limit, even where later revokes have hidden it.
- `lost_device`: a 201 whose device no later 204 revoked has no row.
- `row_after_revoke`: a revoked device still has its row.
- `row_without_201`: a row that no 201 explains, nor a call without a usable answer.
- `duplicate_row`: the same device twice. Counted row by row, so that it is found with the unique key gone.
- `contradiction`: the answers about one device fit no order, for example two 201 with no revoke between.
- `refused_with_room`: a 409 although, in no order, the user can have been at the limit.
- `quota_disagrees`, `list_disagrees`: what the API now says is not what the rows are.

Which verdicts the order of overlapping calls allows is reasoned out in history.py. Calls without a usable
answer (time-out, lost connection, 5xx) make no violation and excuse none but their own row; they are
counted apart. Such a call may still be running while the audit reads, so where rows and API disagree for a
user who has one, both are read again before it counts.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from loadtest import history
from loadtest.client import Sample
from loadtest.database import Database, Unreadable
from loadtest.plan import Plan
from loadtest.service import NoAnswer, Quota, Service

SETTLE_SECONDS, SETTLE_TRIES = 0.5, 6
API_THREADS = 8


@dataclasses.dataclass(frozen=True)
class Violation:
    kind: str
    user: int
    detail: str


@dataclasses.dataclass(frozen=True)
class Audit:
    """`unread` says why the audit could not be finished; without it every user was looked at.

    `rows` are all rows of the run's users, `fullest` those of the user who has most, `uncertain` the calls
    without a usable answer.
    """

    users: int
    rows: int
    fullest: int
    uncertain: int
    violations: tuple[Violation, ...]
    unread: str = ""

    @property
    def offenders(self) -> list[int]:
        return sorted({violation.user for violation in self.violations})


UserHistory = dict[str, list[Sample]]  # one user's samples by device


def audit(plan: Plan, samples: Sequence[Sample], database: Database, services: list[Service]) -> Audit:
    """Looks at every user of the plan who was called for, and at every row of the plan's users."""
    users = by_user(samples)
    try:
        rows = database.rows(plan.first_user, plan.first_user + plan.users - 1)
    except Unreadable as error:
        return Audit(len(users), 0, 0, _uncertain(samples), (), f"the database cannot be audited: {error}")
    held = rows.by_user()
    violations: list[Violation] = []
    for user in sorted({*users, *held}):
        violations += check_user(user, users.get(user, {}), held.get(user, []), plan.limit)
    unread = ""
    try:
        violations += check_api(users, held, plan.limit, database, services)
    except (NoAnswer, Unreadable) as error:
        unread = f"the audit could not be finished: {error}"
    return Audit(
        users=len({*users, *held}),
        rows=len(rows.devices),
        fullest=max(map(len, held.values()), default=0),
        uncertain=_uncertain(samples),
        violations=tuple(violations),
        unread=unread,
    )


def by_user(samples: Iterable[Sample]) -> dict[int, UserHistory]:
    users: dict[int, UserHistory] = {}
    for sample in samples:
        devices = users.setdefault(sample.user, {})
        if sample.device:
            devices.setdefault(sample.device, []).append(sample)
    return users


def check_user(user: int, devices: UserHistory, rows: list[str], limit: int) -> Iterator[Violation]:
    """Everything that rows and answers say of one user."""
    if len(rows) > limit:
        yield Violation("over_limit", user, f"{len(rows)} devices in the table, the limit is {limit}")
    held = history.most_held_for_certain(devices.values())
    if held > limit >= len(rows):
        yield Violation(
            "over_limit", user, f"held {held} devices at once during the run, the limit is {limit}"
        )
    copies = Counter(rows)
    for device, count in copies.items():
        if count > 1:
            yield Violation("duplicate_row", user, f"device {device} has {count} rows")
    for device in sorted({*devices, *copies}):
        yield from _check_device(user, device, devices.get(device, []), present=device in copies)
    for refusal in history.refused_with_room(devices.values(), limit):
        detail = f"device {refusal.device} got 409 at {refusal.finished:.3f} s with fewer than {limit} held"
        yield Violation("refused_with_room", user, detail)


def _check_device(user: int, device: str, samples: list[Sample], *, present: bool) -> Iterator[Violation]:
    if history.fits(samples, present):
        return
    answers = Counter(sample.status for sample in samples)
    told = f"201 came {answers[201]} times, 204 {answers[204]} times"
    may_register = any(s.action != "revoke" and (s.status == 201 or s.uncertain) for s in samples)
    if present and not may_register:
        yield Violation("row_without_201", user, f"device {device} has a row, but no call can have made it")
    elif not history.fits(samples, None):
        yield Violation(
            "contradiction", user, f"no order explains the answers about device {device} ({told})"
        )
    elif present:
        yield Violation("row_after_revoke", user, f"device {device} still has its row ({told})")
    else:
        yield Violation("lost_device", user, f"device {device} has no row ({told})")


def check_api(
    users: dict[int, UserHistory],
    held: dict[int, list[str]],
    limit: int,
    database: Database,
    services: list[Service],
) -> list[Violation]:
    """Asks every target for every user's quota and list. Raises NoAnswer, Unreadable."""

    def ask(user: int) -> list[Violation]:
        rows = held.get(user, [])
        late = any(s.uncertain for samples in users.get(user, {}).values() for s in samples)
        for _ in range(SETTLE_TRIES if late else 1):
            found = [v for service in services for v in _compare(service, user, rows, limit)]
            if not found:
                break
            if late:
                time.sleep(SETTLE_SECONDS)
                rows = database.rows(user, user).by_user().get(user, [])
        return found

    with ThreadPoolExecutor(API_THREADS) as pool:
        return [violation for found in pool.map(ask, sorted({*users, *held})) for violation in found]


def _compare(service: Service, user: int, rows: list[str], limit: int) -> Iterator[Violation]:
    right = Quota(limit, len(rows), max(0, limit - len(rows)))
    listed, quota_of_list = service.devices(user)
    for name, quota in (("quota", service.quota(user)), ("list's quota", quota_of_list)):
        if quota != right:
            said = f"limit {quota.limit}, used {quota.used}, remaining {quota.remaining}"
            yield Violation(
                "quota_disagrees", user, f"{service.target}: {name} says {said}; {len(rows)} rows"
            )
    if sorted(listed) != sorted(rows):
        yield Violation(
            "list_disagrees", user, f"{service.target}: the list has {len(listed)} devices, {len(rows)} rows"
        )


def _uncertain(samples: Iterable[Sample]) -> int:
    return sum(sample.uncertain for sample in samples)
