"""One process of a run: connects its lanes, waits at the barrier, makes its share of the plan's calls."""

import asyncio
import dataclasses
import gc
import ssl
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

import httpx

from loadtest.client import Access, Lane, Sample
from loadtest.plan import Call, Plan

try:
    import uvloop
except ImportError:  # not on every platform; the standard loop is slower, not different
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

FLUSH_SECONDS = 0.2


class Say(NamedTuple):
    """Worker to parent. Order: loaded, ready or failed, then samples any number of times, done."""

    what: str
    text: str = ""
    samples: tuple[Sample, ...] = ()
    unsent: int = 0


class Bid(NamedTuple):
    """Parent to worker. `go` carries the instant of the start, `stop` the seconds that are left."""

    what: str
    at: float = 0.0


@dataclasses.dataclass(frozen=True)
class Share:
    """Every `of`-th call of the plan, beginning with number `nth`, over `lanes` connections."""

    plan: Plan
    access: Access
    nth: int
    of: int
    lanes: int


class Queue:
    """The lanes to one target and the calls that wait for one. Last used, first taken: at a low rate a few
    connections stay warm and the others may close, instead of all being near their idle limit."""

    def __init__(self, lanes: list[Lane]) -> None:
        self.free = lanes
        self.waiting: deque[Call] = deque()


class Worker:
    def __init__(self, share: Share, pipe: Connection) -> None:
        self._share = share
        self._pipe = pipe
        self._calls = [call for n, call in enumerate(share.plan.sequence()) if n % share.of == share.nth]
        self._lanes: list[Lane] = []
        self._queues: list[Queue] = []
        self._fresh: list[Sample] = []
        self._told = 0
        self._stopping = False
        self._finished = False
        self._start_at = 0.0

    async def run(self) -> None:
        await self._say(Say("loaded"))
        if (await self._hear()).what != "connect":
            return
        self._open_lanes()
        try:
            await asyncio.gather(*(lane.connect(self._share.plan.probe_user) for lane in self._lanes))
        except (httpx.TransportError, TimeoutError) as error:
            await self._say(Say("failed", str(error) or "no answer in time"))
            return
        await self._say(Say("ready"))
        gc.collect()
        gc.freeze()  # the plan is not looked through again and again while calls are measured
        bid = await self._hear()
        if bid.what == "go":
            self._start_at = bid.at
            await self._make_calls()

    def _open_lanes(self) -> None:
        targets = self._share.access.targets
        tls = ssl.create_default_context() if any(t.startswith("https") for t in targets) else None
        count = max(self._share.lanes, len(targets))
        self._lanes = [Lane(self._share.access, targets[n % len(targets)], tls) for n in range(count)]
        self._queues = [Queue(self._lanes[n :: len(targets)]) for n in range(len(targets))]

    async def _make_calls(self) -> None:
        listening = asyncio.create_task(self._listen())
        flushing = asyncio.create_task(self._flush_regularly())
        async with asyncio.TaskGroup() as under_way:
            await self._release(under_way)
            if self._share.plan.steady:
                self._give_up_in(self._share.access.timeout_seconds)
        listening.cancel()
        self._finished = True
        await flushing
        await self._say(Say("done", unsent=len(self._calls) - self._told))

    async def _release(self, under_way: asyncio.TaskGroup) -> None:
        """Hands every call to a lane when it is due, whatever became of the calls before: the open loop."""
        for n, call in enumerate(self._calls):
            due_at = self._start_at + call.due
            while not self._stopping and (wait := due_at - time.perf_counter()) > 0:  # noqa: ASYNC110 - a clock
                await asyncio.sleep(min(wait, 0.1))
            if self._stopping:
                return
            queue = self._queues[(n + self._share.nth) % len(self._queues)]
            if queue.free:
                under_way.create_task(self._drive(queue.free.pop(), queue, call))
            else:
                queue.waiting.append(call)

    async def _drive(self, lane: Lane, queue: Queue, call: Call) -> None:
        """Makes this call, then those that wait for a lane."""
        steady = self._share.plan.steady
        while True:
            sample = await lane.call(call, self._start_at + call.due if steady else None)
            self._fresh.append(sample)  # looked up only now: during the call the list may have been flushed
            if not queue.waiting:
                queue.free.append(lane)
                return
            call = queue.waiting.popleft()

    def _give_up_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        for queue in self._queues:
            queue.waiting.clear()
        for lane in self._lanes:
            lane.abandon()

    async def _listen(self) -> None:
        while True:
            bid = await self._hear()  # only "stop" or "gone" can come now; a second "stop" shortens the grace
            self._stopping = True
            for queue in self._queues:
                queue.waiting.clear()
            self._give_up_in(bid.at)
            if bid.what == "gone":
                return

    async def _flush_regularly(self) -> None:
        while not self._finished or self._fresh:
            await asyncio.sleep(FLUSH_SECONDS)
            fresh, self._fresh = self._fresh, []
            if fresh:
                self._told += len(fresh)
                await self._say(Say("samples", samples=tuple(fresh)))

    async def _say(self, say: Say) -> None:
        # In a thread: a parent that is busy drawing must not hold up the calls.
        await asyncio.to_thread(self._pipe.send, say)

    async def _hear(self) -> Bid:
        try:
            bid: Bid = await asyncio.to_thread(self._pipe.recv)
        except (EOFError, OSError):  # without a parent nobody would ever stop this process
            return Bid("gone")
        return bid


def work(share: Share, pipe: Connection) -> None:
    """The process's entry. Started with SIGINT ignored: the parent decides what Ctrl-C means."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(Worker(share, pipe).run())
