"""One run from what was asked for to its record: start all, load and faults, end all, look."""

import contextlib
import dataclasses
import datetime
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pymysql

from loadtest import cluster
from loadtest.database import Database, Unreadable, open_database
from loadtest.errors import BadUse
from loadtest.faults.audit import Findings, audit, look_at_rows, users_of, wait_until_settled
from loadtest.faults.clients import Load, Plan
from loadtest.faults.nemesis import Database as Servers
from loadtest.faults.nemesis import Nemesis
from loadtest.faults.outages import outages
from loadtest.faults.record import Record
from loadtest.faults.replicas import CUPO, Setup, bare_environment, started_replicas
from loadtest.faults.schedule import Schedule, Topology
from loadtest.faults.single import single
from loadtest.linearizability import OPERATIONS, Operation, as_line, write_operations

MIGRATE_SECONDS = 120
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Order:
    """What was asked for. `database_url` is that of a `given` database. `settings` are of the service, with
    their CUPO_; `serve` is the command that starts a replica. `command` repeats the run, without secrets."""

    topology: Topology
    database_url: str
    schedule: Schedule
    plan: Plan
    replicas: int
    workers: int
    serve: Sequence[str]
    settings: Mapping[str, str]
    command: str

    def check(self) -> None:
        """Raises BadUse, in one line."""
        targets = [(fault.on_replica, fault.target or 1) for fault in self.schedule.faults]
        struck = max((target for on_replica, target in targets if on_replica), default=1)
        if struck > self.replicas:
            raise BadUse(f"the schedule strikes replica {struck}, and --replicas is {self.replicas}")
        nodes = 1 if self.topology == "single" else 3
        highest = max((target for on_replica, target in targets if not on_replica), default=1)
        if highest > nodes:
            raise BadUse(f"the schedule strikes node {highest}, and {self.topology} has {nodes}")
        if self.workers == 1 and self.schedule.kinds & {"kill-worker", "pause-worker"}:
            raise BadUse(
                "kill-worker and pause-worker take --workers 2: a replica of one process has none to spare"
            )


def carry_out(order: Order, folder: Path, say: Say) -> tuple[Record, list[Operation]]:
    """Leaves operations and logs in `folder`. Raises BadUse where the run cannot begin, or cannot go on."""
    order.check()
    started_at = datetime.datetime.now(datetime.UTC)
    operations: list[Operation] = []
    with interrupts_raised(), contextlib.ExitStack() as ends:
        say(f"starting {order.topology}")
        servers = ends.enter_context(started_database(order, folder)) if order.topology != "given" else None
        settings = _settings(order, servers)
        database = open_database(settings["CUPO_DATABASE_URL"])
        if servers:
            _migrate(servers, settings)
        _check_users_are_new(database, order.plan.seed)
        nemesis = _load_under_faults(order, folder, servers, settings, operations, say)
        say("all is mended and ended, auditing")
        operations += _rows(order, servers, database, operations)
        found = audit(operations, order.plan.limit, servers, settings)
        version = database.version()
    write_operations(folder / OPERATIONS, operations)
    facts = {"started": f"{started_at:%Y-%m-%d %H:%M:%S} UTC", "database": version, **_facts(order)}
    return _record(order, operations, nemesis, found, facts), operations


def _load_under_faults(
    order: Order,
    folder: Path,
    servers: Servers | None,
    settings: Mapping[str, str],
    operations: list[Operation],
    say: Say,
) -> Nemesis:
    """Ends with every replica stopped in order."""
    steps_clocks = "clock-step" in order.schedule.kinds
    setup = Setup(folder, order.workers, settings, order.serve, steps_clocks=steps_clocks)
    with contextlib.ExitStack() as ends, (folder / OPERATIONS).open("w", encoding="utf-8") as file:
        replicas = started_replicas(setup, order.replicas, ends)

        def hear(operation: Operation) -> None:
            operations.append(operation)
            file.write(as_line(operation) + "\n")

        load = Load(order.plan, [one.url for one in replicas], settings["CUPO_ROOT_KEY"], hear)
        say(f"{order.replicas} replicas serve; the schedule takes {order.schedule.seconds:g} s")
        with running(load) as wait:
            nemesis = Nemesis(servers, replicas, wait, say)
            nemesis.work(order.schedule)
    return nemesis


@contextlib.contextmanager
def running(load: Load) -> Iterator[Callable[[float], None]]:
    """The load in a thread of its own: the main one is needed to start servers. Gives a sleep that ends with
    a BadUse should the load end before its time."""
    with ThreadPoolExecutor(1, thread_name_prefix="load") as thread:
        task: Future[None] = thread.submit(load.run)

        def wait(seconds: float) -> None:
            with contextlib.suppress(TimeoutError):
                raise BadUse("the load ended before its time") from task.exception(timeout=seconds)

        try:
            yield wait
        finally:
            load.stop()
        task.result()


@contextlib.contextmanager
def started_database(order: Order, folder: Path) -> Iterator[Servers]:
    """Raises BadUse where it cannot be had."""
    if order.topology == "single":
        with single(folder, own_log_disk="fill-log-disk" in order.schedule.kinds) as server:
            yield server
        return
    kind: cluster.Kind = "galera" if order.topology == "galera" else "group-replication"
    try:
        with cluster.start(kind, folder / "cluster", "single-primary") as started:
            try:
                yield started
            finally:
                for node in started.nodes:
                    shutil.copy(node.log, folder)
    except cluster.ClusterError as error:
        raise BadUse(str(error)) from error


def _settings(order: Order, servers: Servers | None) -> dict[str, str]:
    """The environment of the service's commands."""
    ours = {
        "CUPO_DATABASE_URL": servers.url(1) if servers else order.database_url,
        "CUPO_ROOT_KEY": secrets.token_hex(16),
        "CUPO_DEFAULT_DEVICE_LIMIT": str(order.plan.limit),
        "CUPO_LOG_FORMAT": "json",
    }
    if servers and len(servers.nodes) > 1:
        ours["CUPO_DATABASE_HOSTS"] = ",".join(f"{node.host}:{node.port}" for node in servers.nodes)
    return {**ours, **order.settings}


def _migrate(servers: Servers, settings: Mapping[str, str]) -> None:
    ended = subprocess.run(  # noqa: S603 - our own words
        (*CUPO, "migrate"),
        env={**bare_environment(), **settings, "CUPO_MIGRATION_DATABASE_URL": servers.url(1, "cupo_migrate")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MIGRATE_SECONDS,
        check=False,
    )
    if ended.returncode:
        raise BadUse(f"cupo migrate failed: {ended.stdout.strip()}")


def _check_users_are_new(database: Database, seed: int) -> None:
    whose = users_of(seed)
    try:
        if database.rows(whose[0], whose[-1]).devices:
            raise BadUse("users of this seed have devices already: give another --seed")
    except Unreadable as error:
        raise BadUse(f"the database {database.address} cannot be audited: {error}") from error


def _rows(
    order: Order, servers: Servers | None, database: Database, operations: Sequence[Operation]
) -> list[Operation]:
    users = sorted({operation.user for operation in operations})
    try:
        if servers:
            wait_until_settled(servers)
        return look_at_rows(database, order.plan.seed, users)
    except (Unreadable, pymysql.MySQLError) as error:
        raise BadUse(f"the rows cannot be looked at: {error}") from error


def _facts(order: Order) -> dict[str, str]:
    plan = order.plan
    return {
        "replicas": f"{order.replicas}, of {order.workers} processes each",
        "load": f"{plan.groups} users at a time, {plan.clients} clients each, {plan.calls} calls a user, "
        f"{plan.pause_seconds:g} s between two calls of a client on average",
        "schedule": ", ".join(map(str, order.schedule.faults)),
        "seed": str(plan.seed),
        "settings": " ".join(f"{name}={value}" for name, value in order.settings.items()) or "as by default",
        "command": order.command,
    }


def _record(
    order: Order, operations: Sequence[Operation], nemesis: Nemesis, found: Findings, facts: dict[str, str]
) -> Record:
    begin = min((operation.sent for operation in operations), default=0.0)
    calls = operations[: len(operations) - found.users]
    return Record(
        topology=order.topology,
        limit=order.plan.limit,
        seconds=max((operation.finished for operation in calls), default=begin) - begin,
        calls=len(calls),
        begin=begin,
        outages=tuple(outages(nemesis.struck, calls)),
        findings=found,
        facts=facts,
    )


@contextlib.contextmanager
def interrupts_raised() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: by default it would end this process and leave the others."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
