"""The parent of a run's processes: starts them, releases them at one instant, gathers their samples."""

import contextlib
import dataclasses
import datetime
import multiprocessing
import multiprocessing.connection
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from loadtest.client import Access, Sample
from loadtest.errors import BadUse
from loadtest.plan import Plan
from loadtest.worker import Bid, Say, Share, work

MAX_PROCESSES, MAX_CONCURRENCY = 64, 10_000
START_IN_SECONDS = 0.25  # from the barrier to the start: every process has heard of it long before
STOP_GRACE_SECONDS = 5.0
READY_SECONDS = 60.0

Watch = Callable[[tuple[Sample, ...], float], None]


@dataclasses.dataclass(frozen=True)
class Crew:
    """How many processes, and how many connections they hold together."""

    processes: int
    concurrency: int

    def check(self) -> None:
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise BadUse(f"--processes must be 1 to {MAX_PROCESSES}, not {self.processes}")
        if not self.processes <= self.concurrency <= MAX_CONCURRENCY:
            raise BadUse(f"--concurrency must be --processes to {MAX_CONCURRENCY:,}, not {self.concurrency}")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What was done. Instants in the samples count from the start; `samples` are ordered by `sent`."""

    samples: list[Sample]
    unsent: int
    interrupted: bool
    started_at: datetime.datetime


@dataclasses.dataclass
class Interrupts:
    """How often the user has asked to stop: once, let calls under way finish; twice, do not."""

    count: int = 0

    def hear(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1


class Mate:
    """One process and this end of its pipe."""

    def __init__(self, share: Share) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(share, theirs), daemon=True)
        # Ctrl-C reaches the whole process group: a process that is still importing must not die of it. Being
        # ignored is inherited, a handler is not.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        theirs.close()

    def hear(self) -> Say:
        try:
            say: Say = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join(5)
            status = self.process.exitcode
            raise BadUse(f"a load process ended too early (status {status}): no verdict") from None
        if say.what == "failed":
            raise BadUse(f"a connection for the run could not be opened: {say.text}")
        return say

    def dismiss(self) -> None:
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def run(plan: Plan, access: Access, crew: Crew, watch: Watch) -> Outcome:
    """Makes the plan's calls; returns when all are answered or given up. Ctrl-C ends it early, nothing is
    lost.

    `watch` sees the samples as they come and the seconds since the start, at least every half second.
    Raises BadUse where the processes cannot connect.
    """
    with listening_for_interrupts() as interrupts:
        mates: list[Mate] = []
        try:
            for share in shares(plan, access, crew):
                mates.append(Mate(share))  # noqa: PERF401 - a failed start must leave the earlier ones listed
            _all_say("loaded", mates, interrupts)
            for mate in mates:
                mate.pipe.send(Bid("connect"))
            _all_say("ready", mates, interrupts)
            return _release(mates, interrupts, watch)
        finally:
            for mate in mates:
                mate.dismiss()


def shares(plan: Plan, access: Access, crew: Crew) -> Iterator[Share]:
    lanes, more = divmod(crew.concurrency, crew.processes)
    for nth in range(crew.processes):
        yield Share(plan, access, nth, crew.processes, lanes + (nth < more))


@contextlib.contextmanager
def listening_for_interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _all_say(what: str, mates: list[Mate], interrupts: Interrupts) -> None:
    """The barrier: nobody goes on before all have arrived."""
    until = time.monotonic() + READY_SECONDS
    for mate in mates:
        while not mate.pipe.poll(0.1):
            if interrupts.count:
                raise BadUse("interrupted before the first call")
            if time.monotonic() > until:
                raise BadUse(f"the load processes were not {what} within {READY_SECONDS:.0f} s")
        mate.hear()


def _release(mates: list[Mate], interrupts: Interrupts, watch: Watch) -> Outcome:
    start = time.perf_counter() + START_IN_SECONDS
    started_at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=START_IN_SECONDS)
    for mate in mates:
        mate.pipe.send(Bid("go", start))
    samples: list[Sample] = []
    unsent, stops = 0, 0
    busy = list(mates)
    while busy:
        for mate in _with_news(busy):
            say = mate.hear()
            fresh = tuple(_from_start(sample, start) for sample in say.samples)
            samples.extend(fresh)
            unsent += say.unsent
            watch(fresh, time.perf_counter() - start)
            if say.what == "done":
                busy.remove(mate)
        watch((), time.perf_counter() - start)
        if interrupts.count > stops:
            stops = interrupts.count
            for mate in busy:
                mate.pipe.send(Bid("stop", STOP_GRACE_SECONDS if stops == 1 else 0.0))
    return Outcome(sorted(samples, key=lambda sample: sample.sent), unsent, bool(stops), started_at)


def _with_news(mates: list[Mate]) -> list[Mate]:
    ready = multiprocessing.connection.wait([mate.pipe for mate in mates], timeout=0.25)
    return [mate for mate in mates if mate.pipe in ready]


def _from_start(sample: Sample, start: float) -> Sample:
    due, sent, finished = (round(at - start, 6) for at in sample[:3])
    return Sample(due, sent, finished, *sample[3:])
