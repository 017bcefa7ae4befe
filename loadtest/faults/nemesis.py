"""Who works the faults of a schedule on the database and on the replicas, and undoes each."""

import contextlib
import dataclasses
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from loadtest.cluster import Cluster, ClusterError, Health, OneWay
from loadtest.errors import BadUse
from loadtest.faults.clock import DAY_SECONDS
from loadtest.faults.replicas import Replica
from loadtest.faults.schedule import Fault, Schedule
from loadtest.faults.single import Single
from loadtest.installations import ServerError

HEALTHY_SECONDS = 120
LOOKS, LOOK_SECONDS = 300, 0.2

Database = Single | Cluster
Undo = Callable[[], None]
ONE_WAY: Mapping[str, OneWay | None] = {"partition": None, "partition-in": "in", "partition-out": "out"}


class Node(Protocol):
    """What can be done to one server of whatever database. Starting it takes the main thread."""

    @property
    def number(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def health(self) -> Health: ...
    def run(self, *statements: str) -> list[tuple[Any, ...]]: ...


@dataclasses.dataclass(frozen=True)
class Struck:
    """One fault as it came. `began` and `ended` in seconds of the clock of the operations; the same where it
    undid itself. Until `ended` it was being undone: a server that is started again takes its time."""

    fault: str
    target: str
    began: float
    ended: float


class Nemesis:
    """`wait` takes seconds, and may end sooner by an exception, as when the load has ended."""

    def __init__(
        self,
        database: Database | None,
        replicas: Sequence[Replica],
        wait: Callable[[float], None],
        say: Callable[[str], None],
    ) -> None:
        self._database, self._replicas, self._wait, self._say = database, replicas, wait, say
        self._turns = itertools.cycle(replicas)
        self._under_way: dict[Fault, tuple[str, float, Undo]] = {}
        self.struck: list[Struck] = []

    def work(self, schedule: Schedule) -> None:
        """Every fault at its time, and at the end nothing that is still broken. Main thread only.

        Raises BadUse where a server or replica could not be started again.
        """
        began_at = time.perf_counter()
        events = [(fault.at, fault, self._strike) for fault in schedule.faults]
        events += [(fault.at + fault.lasting, fault, self._undo) for fault in schedule.faults if fault.lasts]
        try:
            for at, fault, act in sorted(events, key=lambda event: event[0]):
                self._wait(max(0.0, began_at + at - time.perf_counter()))
                # What could not come in time moves what follows, or faults would begin and end at once.
                began_at = max(began_at, time.perf_counter() - at)
                act(fault)
            if self._database is not None:
                self._database.wait_until_healthy(HEALTHY_SECONDS)
            self._wait(max(0.0, began_at + schedule.seconds - time.perf_counter()))
        except (ClusterError, ServerError) as error:
            raise BadUse(f"what a fault had broken could not be mended: {error}") from error
        finally:
            self._resume_processes()

    def _resume_processes(self) -> None:
        """Those that an exception has left paused: they could not end, and nobody else knows of them."""
        for fault, (_, _, undo) in self._under_way.items():
            if fault.kind == "pause-worker":
                undo()

    def _strike(self, fault: Fault) -> None:
        began = time.perf_counter()
        act = self._strike_replica if fault.on_replica else self._strike_database
        target, undo = act(fault)
        self._say(f"{fault}: {target}")
        if fault.lasts:
            self._under_way[fault] = (target, began, undo)
        else:
            self.struck.append(Struck(str(fault), target, began, began))

    def _undo(self, fault: Fault) -> None:
        target, began, undo = self._under_way.pop(fault)
        undo()
        self.struck.append(Struck(str(fault), target, began, time.perf_counter()))
        self._say(f"{fault}: over")

    def _strike_database(self, fault: Fault) -> tuple[str, Undo]:
        database = self._database
        if database is None:
            raise BadUse(f"{fault.kind} takes a database of the run's own")
        if all(other.on_replica for other in self._under_way):
            # Who was expelled by the fault before joins again: with two away at once there is no majority.
            database.wait_until_healthy(HEALTHY_SECONDS)
        if fault.kind == "change-primary":
            return self._change_primary(database, fault.target), _nothing
        node = self._node(database, fault.target, taking_writes=True)
        target, undo = f"node {node.number}", node.start
        match fault.kind:
            case "kill-database":
                node.kill()
            case "restart-database":
                node.stop()
            case "pause-database":
                node.pause()
                undo = node.resume
            case "fill-log-disk" if isinstance(database, Single) and database.nodes[0].log_disk is not None:
                database.nodes[0].log_disk.fill()
                undo = database.nodes[0].log_disk.free
            case cut if isinstance(database, Cluster):
                database.partition(node.number, ONE_WAY[cut])
                undo = database.heal
        return target, undo

    def _strike_replica(self, fault: Fault) -> tuple[str, Undo]:
        replica = next(self._turns) if fault.target is None else self._replicas[fault.target - 1]
        target, undo = f"replica {replica.number}", replica.start
        match fault.kind:
            case "kill-worker":
                pid = self._worker(replica)
                target = f"{target}, process {pid}"
                os.kill(pid, signal.SIGKILL)
            case "pause-worker":
                pid = self._worker(replica)
                target = f"{target}, process {pid}"
                os.kill(pid, signal.SIGSTOP)
                undo = lambda: resume(pid)  # noqa: E731 - of this process
            case "kill-replica":
                replica.kill()
            case "stop-replica":
                replica.stop()
            case "clock-step" if (clock := replica.clock) is not None:
                clock.put_forward(DAY_SECONDS)
                undo = lambda: clock.put_forward(0)  # noqa: E731 - of this replica
        return target, undo

    def _worker(self, replica: Replica) -> int:
        """One that serves: those that were just killed are being replaced."""
        for _ in range(LOOKS):
            if workers := replica.workers():
                return workers[0]
            self._wait(LOOK_SECONDS)
        raise BadUse(f"replica {replica.number} has no process that serves:\n{replica.process.last_words()}")

    def _change_primary(self, database: Database, number: int | None) -> str:
        """MySQL's manual, "Changing the Primary": asked of the node that is to be it."""
        node = self._node(database, number, taking_writes=False)
        ((name,),) = node.run("SELECT @@server_uuid")
        node.run(f"SELECT group_replication_set_as_primary('{name}')")
        return f"node {node.number} takes over"

    def _node(self, database: Database, number: int | None, *, taking_writes: bool) -> Node:
        """The one of this number, or the first member that takes writes, or the first that does not."""
        if number is not None:
            return database.nodes[number - 1]
        for _ in range(LOOKS):
            for node in database.nodes:
                health = node.health()
                if health.is_member and health.takes_writes == taking_writes:
                    return node
            self._wait(LOOK_SECONDS)
        raise BadUse(f"no node to strike: {[node.health() for node in database.nodes]}")


def _nothing() -> None:
    """The undoing of what undoes itself."""


def resume(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
