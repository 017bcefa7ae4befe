"""The callers: a thread each, spread over processes that live for the whole run, released together."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loadtest.compare.calls import Sample, call, pause_past_lease
from loadtest.compare.redis_server import redis_client
from loadtest.strategies import Caller, Need, Phase, go_on
from loadtest.strategies.catalogue import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection as Pipe
    from multiprocessing.context import SpawnProcess
    from multiprocessing.synchronize import Barrier

    from loadtest.compare.database import Address
    from loadtest.compare.plan import LabPlan

SPAWN = multiprocessing.get_context("spawn")
LONGEST_USER_SECONDS = 120  # nobody waits for a caller that is stuck: the barrier breaks and the run says so
LEAVE_SECONDS = 5


class CallerFailed(Exception):  # the run cannot go on
    """A caller met an error that is no part of its strategy."""


@dataclass(frozen=True)
class Errand:
    """One phase of one strategy, as the processes are told of it."""

    strategy: str
    phase: Phase
    plan: LabPlan
    address: Address
    redis_url: str | None


@dataclass
class Crew:
    """The processes and their pipes; `run` sends all of them on the same errand."""

    barrier: Barrier
    processes: list[SpawnProcess] = field(default_factory=list)
    pipes: list[Pipe] = field(default_factory=list)

    def run(self, errand: Errand) -> list[Sample]:
        """Raises CallerFailed with the first caller's words where an errand could not be carried out."""
        self.barrier.reset()
        for pipe in self.pipes:
            pipe.send(errand)
        samples: list[Sample] = []
        failures: list[str] = []
        for pipe in self.pipes:
            try:
                answer: list[Sample] | str = pipe.recv()
            except EOFError:
                raise CallerFailed("a process of callers died") from None
            if isinstance(answer, str):
                failures.append(answer)
            else:
                samples.extend(answer)
        if failures:
            raise CallerFailed(
                next((words for words in failures if "BrokenBarrier" not in words), failures[0])
            )
        return samples


@contextmanager
def crew(plan: LabPlan) -> Iterator[Crew]:
    """Starts the processes once, since each costs more to start than a phase takes to run."""
    hired = Crew(SPAWN.Barrier(plan.callers))
    try:
        for number in range(plan.processes):
            ours, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=work, args=(theirs, hired.barrier, number), daemon=True)
            process.start()
            theirs.close()
            hired.processes.append(process)
            hired.pipes.append(ours)
        yield hired
    finally:
        hired.barrier.abort()
        for pipe in hired.pipes:
            pipe.close()
        for process in hired.processes:
            process.join(LEAVE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()


def work(pipe: Pipe, barrier: Barrier, number: int) -> None:
    """A process of callers: errands in, samples or an error's words out, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the pipe
    while True:
        try:
            errand: Errand = pipe.recv()
        except EOFError:
            return
        callers = [_CallerThread(errand, barrier, caller) for caller in errand.plan.callers_of(number)]
        for thread in callers:
            thread.start()
        for thread in callers:
            thread.join()
        failed = [thread.failure for thread in callers if thread.failure]
        try:
            pipe.send(
                next((words for words in failed if "BrokenBarrier" not in words), failed[0])
                if failed
                else [sample for thread in callers for sample in thread.samples]
            )
        except BrokenPipeError:
            return


class _CallerThread(threading.Thread):
    def __init__(self, errand: Errand, barrier: Barrier, caller: int) -> None:
        super().__init__(daemon=True)
        self._errand, self._barrier, self._number = errand, barrier, caller
        self.samples: list[Sample] = []
        self.failure = ""

    def run(self) -> None:
        try:
            self._register_all()
        except Exception as error:  # noqa: BLE001  # whatever it is, the others must not wait for this caller
            self.failure = f"{type(error).__name__}: {error}"
            self._barrier.abort()

    def _register_all(self) -> None:
        errand, plan, strategy = self._errand, self._errand.plan, BY_NAME[self._errand.strategy]
        with closing(errand.address.connect(strategy.isolation)) as connection:
            asking = (
                redis_client(errand.redis_url) if errand.redis_url and strategy.needs is Need.REDIS else None
            )
            pause = pause_past_lease(asking, strategy, plan.limit) if asking and strategy.pause_at else go_on
            caller = Caller(connection, asking, pause)
            for user_id in plan.user_ids(errand.phase):
                device_id = plan.device_ids(user_id)[self._number]
                self._barrier.wait(LONGEST_USER_SECONDS)
                self.samples.append(call(strategy, caller, user_id, device_id, plan.limit))
            if asking is not None:
                asking.close()
