"""One run from what was asked for to its record: preflight, calls, audit."""

import dataclasses
import datetime
import os
import platform
from pathlib import Path
from typing import Literal

import httpx
from rich.console import Console

from loadtest import crew as crews
from loadtest import preflight
from loadtest.client import Access, Sample
from loadtest.database import Database
from loadtest.errors import BadUse
from loadtest.invariants import Audit, audit
from loadtest.plan import Plan
from loadtest.progress import watching
from loadtest.record import Record
from loadtest.samples import as_text, percentile
from loadtest.service import Service

AUDIT_TRIES = 5  # after the load the service may need a moment; before it, an error is told at once


@dataclasses.dataclass(frozen=True)
class Order:
    """What was asked for. `plan.limit` counts only once the service has been asked; `expected_limit` is what
    the caller thinks. `command` repeats the run, without its secrets."""

    plan: Plan
    expected_limit: int | None
    access: Access
    crew: crews.Crew
    database: Database
    empty_first: bool
    command: str

    @property
    def kind(self) -> Literal["race", "steady"]:
        return "steady" if self.plan.steady else "race"


def carry_out(order: Order, console: Console) -> tuple[Record, list[Sample]]:
    """Raises BadUse where the run cannot begin; afterwards whatever happens is in the record."""
    order.crew.check()
    check_targets(order.access)
    services = [Service(target, order.access) for target in order.access.targets]
    try:
        plan, facts = _prepare(order, services)
        with watching(plan.calls, console) as watch:
            outcome = crews.run(plan, order.access, order.crew, watch)
        console.print("auditing", highlight=False)
        found = _audited(plan, outcome.samples, order.database, services)
    finally:
        for service in services:
            service.close()
    samples = outcome.samples
    late = _lateness(plan, samples, order.crew.concurrency)
    run = Record(
        kind=order.kind,
        limit=plan.limit,
        users=plan.users,
        planned=plan.calls,
        unsent=outcome.unsent,
        on_time=sum(not plan.steady or s.sent <= plan.duration_seconds for s in samples),
        interrupted=outcome.interrupted,
        rate=plan.rate,
        seconds=max((s.finished for s in samples), default=0.0),
        facts={"started": f"{outcome.started_at:%Y-%m-%d %H:%M:%S} UTC", **facts, **late},
        audit=found,
    )
    return run, samples


def _audited(plan: Plan, samples: list[Sample], database: Database, services: list[Service]) -> Audit:
    """Ctrl-C leaves the audit unfinished, and the report is still written."""
    for service in services:
        service.tries = AUDIT_TRIES
    try:
        return audit(plan, samples, database, services)
    except KeyboardInterrupt:
        return Audit(
            users=0, rows=0, fullest=0, uncertain=0, violations=(), unread="the audit was interrupted"
        )


def check_targets(access: Access) -> None:
    if not access.key:
        raise BadUse("no key: give --key or set CUPO_ROOT_KEY")
    if not access.key.isascii() or not access.key.isprintable():
        raise BadUse("the key has characters that no key has: see --key or CUPO_ROOT_KEY")
    for target in access.targets:
        try:
            url = httpx.URL(target)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise BadUse(f"--target {target!r} is no address: write http://127.0.0.1:8000")


def _prepare(order: Order, services: list[Service]) -> tuple[Plan, dict[str, str]]:
    """Everything that can be refused is refused here, before the first call."""
    limit = preflight.agreed_limit(services, order.plan.probe_user, order.expected_limit)
    plan = dataclasses.replace(order.plan, limit=limit)
    with preflight.one_line(order.database):
        version = order.database.version()
    preflight.check_same_database(services, order.database, plan.probe_user, limit)
    state = preflight.check_users_are_new(services[0], order.database, plan, empty_first=order.empty_first)
    return plan, _facts(order, plan, version, services) | {"before the run": state}


def _facts(order: Order, plan: Plan, database_version: str, services: list[Service]) -> dict[str, str]:
    versions = {service.version() for service in services} - {""}
    mix = ", ".join(f"{action} {weight:g}" for action, weight in plan.mix)
    if plan.steady:
        pace = f"{plan.rate:g}/s for {plan.duration_seconds:g} s, ramp {plan.ramp_seconds:g} s of it"
    else:
        pace = f"{plan.calls:,} at once"
    return {
        "command": order.command,
        "seed": str(plan.seed),
        "users": f"{plan.users:,}: {plan.first_user} to {plan.first_user + plan.users - 1}",
        "limit": str(plan.limit),
        "calls": f"{pace}; mix: {mix}",
        "load": f"{order.crew.processes} processes, {order.crew.concurrency} connections",
        "targets": ", ".join(order.access.targets),
        "service": f"Cupo {', '.join(sorted(versions))}" if versions else "does not tell its version",
        "database": f"{database_version} at {order.database.address}",
        "client": f"Python {platform.python_version()}, httpx {httpx.__version__}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }


def _lateness(plan: Plan, samples: list[Sample], connections: int) -> dict[str, str]:
    """How punctual the load was: what is late here is no merit and no fault of the service."""
    if plan.steady:
        late = sorted(max(0.0, s.sent - s.due) for s in samples)
        return {
            "sent late by": f"{as_text(percentile(late, 50))} (p50), {as_text(percentile(late, 99))} (p99)"
        }
    connected = samples[: len(samples) and connections]  # ordered by sent: each connection's first call
    return {"released within": as_text(connected[-1].sent - connected[0].sent)} if connected else {}


def default_folder(order: Order, now: datetime.datetime) -> Path:
    return Path("loadtest-results") / f"{order.kind}-{now:%Y%m%dT%H%M%SZ}-seed{order.plan.seed}"


def make_folder(folder: Path) -> None:
    """Raises BadUse where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadUse(f"--out {folder} cannot be made: {error.strerror}") from error
