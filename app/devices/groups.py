"""Group registration: while one group is in the database, the calls that arrive wait, and are the next group.

Nobody waits for others to come: a call that finds nobody in the database goes there at once, and alone if no
other has arrived with it. See docs/decisions/0024-group-registration.md.
"""

import asyncio
import time
from collections import deque
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from anyio import CapacityLimiter, to_thread

from app import metrics
from app.db import Database
from app.devices import service
from app.devices.group_service import Alone, Call, Outcome, register_together
from app.devices.service import Registered
from app.errors import AppError, Overloaded
from app.nodes import MOST_GROUPS, Node
from app.retries import Earlier
from app.settings import Settings

# How long those who wait hold still for those in the database. Who is there for longer may wait for a lock,
# or for a server that does not answer.
LONGEST_TURN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _First:
    """No other has arrived with the call: it has the turn to itself, and ends it."""

    turn: asyncio.TimerHandle


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call in the queue."""

    call: Call
    answer: asyncio.Future[Registered | Alone | _First]
    gives_up: asyncio.TimerHandle


class Groups:
    """The registrations of one process. For one event loop."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._queues: dict[Node, _Queue] = {}

    async def register(self, call: Call) -> Registered:
        """`service.register`, together with others where they wait as well. Raises what that raises.

        Overloaded (503) where too many wait, or a call was not taken in CUPO_DATABASE_POOL_WAIT_SECONDS.
        """
        if self._settings.group_size == 1 or call.asks_for_room or self._db.has_several_writers:
            return await _alone(self._db, self._settings, call)
        node = self._db.node_of(call.user_id)
        if node not in self._queues:
            self._queues[node] = _Queue(self._db, node, self._settings)
        return await self._queues[node].register(call)


async def _alone(db: Database, settings: Settings, call: Call, earlier: Earlier | None = None) -> Registered:
    args = (settings, call.origin, call.user_id, call.device_id, call.new)
    return await db.of_user(call.user_id).submit(service.register, *args, earlier=earlier)


class _Queue:
    """The registrations that wait for one node of the database, and those whose turn it is."""

    def __init__(self, db: Database, node: Node, settings: Settings) -> None:
        self._db = db
        self._node = node
        self._settings = settings
        self._waiting: deque[_Waiting] = deque()
        self._turns: set[asyncio.TimerHandle] = set()
        self._threads = CapacityLimiter(MOST_GROUPS)
        self._groups = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def register(self, call: Call) -> Registered:
        arrived_at = time.monotonic()
        outcome = await self._outcome_of(call)
        if isinstance(outcome, _First):
            try:
                return await _alone(self._db, self._settings, call)
            finally:
                self._end_turn(outcome.turn)
        if isinstance(outcome, Alone):
            metrics.GROUP_LEFT.inc()
            earlier = Earlier(arrived_at, outcome.failure, outcome.uncertain_result)
            return await _alone(self._db, self._settings, call, earlier)
        return outcome

    async def _outcome_of(self, call: Call) -> Registered | Alone | _First:
        if len(self._waiting) >= self._settings.group_queue:
            raise Overloaded("Too many registrations wait.")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Registered | Alone | _First] = loop.create_future()
        gives_up = loop.call_later(self._settings.database_pool_wait_seconds, _give_up, answer)
        self._waiting.append(_Waiting(call, answer, gives_up))
        if not self._turns:
            loop.call_soon(self._begin_next_group)  # after the calls that have arrived by now
        return await answer

    def _begin_turn(self) -> asyncio.TimerHandle:
        """Those who wait hold still from now on, until the turn is ended or has been long enough."""
        loop = asyncio.get_running_loop()
        turn: asyncio.TimerHandle = loop.call_later(LONGEST_TURN_SECONDS, lambda: self._end_turn(turn))
        self._turns.add(turn)
        return turn

    def _end_turn(self, turn: asyncio.TimerHandle) -> None:
        turn.cancel()
        self._turns.discard(turn)
        self._begin_next_group()

    def _begin_next_group(self) -> None:
        if self._turns or self._groups >= MOST_GROUPS:
            return
        group = self._next_group()
        if len(group) == 1:
            group[0].answer.set_result(_First(self._begin_turn()))
        elif group:
            self._groups += 1
            # In a context that is nobody's: what is recorded there is told to those whom the group names.
            work = self._answer_together(group, self._begin_turn())
            task = asyncio.get_running_loop().create_task(work, context=Context())
            self._tasks.add(task)  # the loop alone would let go of it
            task.add_done_callback(self._tasks.discard)

    def _next_group(self) -> list[_Waiting]:
        """Those who came first, but for those who have left or were sent away."""
        group: list[_Waiting] = []
        while self._waiting and len(group) < self._settings.group_size:
            one = self._waiting.popleft()
            one.gives_up.cancel()
            if not one.answer.done():
                group.append(one)
        return group

    async def _answer_together(self, group: list[_Waiting], turn: asyncio.TimerHandle) -> None:
        metrics.GROUP_SIZE.observe(len(group))
        calls = [one.call for one in group]
        outcomes: list[Outcome] = [Alone()] * len(group)
        try:
            outcomes = await to_thread.run_sync(
                register_together, self._db, self._node, self._settings, calls, limiter=self._threads
            )
        finally:  # after a fault, the calls that had no part in it go alone
            self._groups -= 1
            self._end_turn(turn)
            for one, outcome in zip(group, outcomes, strict=True):
                if one.answer.done():
                    continue  # the caller has left
                if isinstance(outcome, AppError):
                    one.answer.set_exception(outcome)
                else:
                    one.answer.set_result(outcome)


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        metrics.POOL_TIMEOUTS.inc()
        answer.set_exception(Overloaded())
