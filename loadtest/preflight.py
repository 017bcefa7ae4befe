"""Everything that can be wrong before the first call, each in one clear line: unreachable, wrong key, another
limit, a database that cannot be audited or is not the service's, users who are not new."""

import contextlib
from collections.abc import Iterator

from loadtest.database import Database, Unreadable
from loadtest.errors import BadUse
from loadtest.plan import Plan
from loadtest.service import NoAnswer, Service

PROBE_DEVICE = "lt-probe"


@contextlib.contextmanager
def one_line(database: Database | None = None) -> Iterator[None]:
    try:
        yield
    except NoAnswer as error:
        raise BadUse(str(error)) from error
    except Unreadable as error:
        address = f" {database.address}" if database else ""
        raise BadUse(f"the database{address} cannot be audited: {error}") from error


def agreed_limit(services: list[Service], user: int, expected: int | None) -> int:
    """The limit that every target gives a new user. Raises BadUse where they or the caller disagree."""
    with one_line():
        limits = {service.target: service.quota(user).limit for service in services}
    first = next(iter(limits.values()))
    for target, limit in limits.items():
        if expected is not None and limit != expected:
            raise BadUse(
                f"the limit at {target} is {limit}, not {expected}: "
                f"give --limit {limit}, or start the service with CUPO_DEFAULT_DEVICE_LIMIT={expected}"
            )
        if limit != first:
            raise BadUse(f"the targets disagree on the limit: {limits}")
    return first


def check_same_database(services: list[Service], database: Database, user: int, limit: int) -> None:
    """Registers a device for the probe's user through each target, looks for its row, revokes it.

    Without this look, rows sought in the wrong database would all be missing: a false alarm for everybody.
    """
    if limit == 0:
        return
    for service in services:
        with one_line(database):
            status = service.register(user, PROBE_DEVICE)
            found = (user, PROBE_DEVICE) in database.rows(user, user).devices
            service.revoke(user, PROBE_DEVICE)
        if status not in (200, 201):
            raise BadUse(
                f"{service.target} does not register a new user's first device: it answered {status}"
            )
        if not found:
            raise BadUse(
                f"{service.target} does not write to {database.address}: "
                "a device registered there has no row here; see --database-url"
            )


def check_users_are_new(service: Service, database: Database, plan: Plan, *, empty_first: bool) -> str:
    """Says in what state the run's users are before it. Raises BadUse where they have devices already."""
    last = plan.first_user + plan.users - 1
    with one_line(database):
        rows = database.rows(plan.first_user, last)
        if rows.devices and empty_first:
            for user, device in rows.devices:
                service.revoke(user, device)
            rows = database.rows(plan.first_user, last)
    if rows.devices:
        owners = {user for user, _ in rows.devices}
        raise BadUse(
            f"{len(owners)} of the run's users have devices already (first: {min(owners)}): "
            "give another --seed, or --empty-first to revoke them"
        )
    known = f"{rows.lock_rows:,} of them known" if rows.lock_rows else "none of them known"
    return f"{plan.users:,} users without devices, {known} to the service"
