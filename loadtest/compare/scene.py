"""Where an interleaving is played: one user, one free place, callers that stop where they are told to."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pymysql
import redis

from loadtest.compare.calls import CONTENTION, LOCK_WAIT
from loadtest.compare.database import LOCK_WAIT_SECONDS, Address, lay_tables, seed
from loadtest.compare.redis_server import PrivateRedis, forget, redis_client
from loadtest.strategies import Caller, LockBusy, LockLost, Need, Phase, Point, Strategy
from loadtest.strategies.catalogue import BY_NAME
from loadtest.strategies.redis_lease import lease_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from multiprocessing.connection import Connection as Pipe
    from types import TracebackType

    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

USER = 1
PLACES = 1
DONE_SECONDS = 30


@dataclass
class Scene:
    """Tables, Redis and callers of the strategy that is played. `server`: a Redis that may be killed."""

    address: Address
    database: Connection[Cursor]
    redis_url: str | None
    server: PrivateRedis | None
    closing: ExitStack
    strategy: Strategy = field(init=False)

    def lacks(self, strategy: Strategy, *, restart: bool) -> str:
        if strategy.needs is Need.REDIS and self.redis_url is None:
            return "no Redis here"
        return "no redis-server here to stop" if restart and self.server is None else ""

    def prepare(self, strategy: Strategy) -> None:
        self.strategy = strategy
        lay_tables(self.database, strategy)
        seed(self.database, strategy, Phase.KNOWN, range(USER, USER + 1))
        if self.redis_url and strategy.needs is Need.REDIS:
            forget(self.redis_url)

    @property
    def key(self) -> str:
        return lease_key(self.strategy.devices.table, USER)

    @property
    def redis(self) -> redis.Redis | None:
        if self.redis_url is None or self.strategy.needs is not Need.REDIS:
            return None
        client = redis_client(self.redis_url)
        self.closing.callback(client.close)
        return client

    def caller(self, lock_wait_seconds: int = LOCK_WAIT_SECONDS) -> Caller:
        """A caller of its own connection that asks for a lease once and does not wait for it."""
        connection = self.address.connect(self.strategy.isolation, lock_wait_seconds)
        self.closing.callback(connection.close)
        return Caller(connection, self.redis, patience_seconds=0)

    def told(self, caller: Caller, device_id: str) -> str:
        """One call's answer, or in a word what stood in its way."""
        try:
            return str(self.strategy.register(caller, USER, device_id, PLACES))
        except LockLost:
            answer = "lock lost"
        except LockBusy:
            answer = "lock busy"
        except redis.RedisError:
            answer = "no Redis"
        except pymysql.err.OperationalError as error:
            if error.args[0] not in CONTENTION:
                raise
            answer = "waits" if error.args[0] == LOCK_WAIT else "deadlock"
        caller.rollback()
        return answer

    def devices(self) -> int:
        with self.database.cursor() as cursor:
            cursor.execute(self.strategy.devices.count, (USER,))
            row = cursor.fetchone()
        return int(row[0]) if row else 0

    def end_lease(self) -> None:
        """What its time would do; nothing where there is no lease."""
        client = self.redis
        if client is not None:
            client.pexpire(self.key, 0)

    def delete_lease(self) -> None:
        client = self.redis
        if client is not None:
            client.delete(self.key)

    def kill_redis(self) -> None:
        if self.server is not None:
            self.server.kill()

    def start_redis(self) -> None:
        if self.server is not None:
            self.server.start()


class HeldUp:
    """A caller in a thread of its own, stopped while the `with` lasts; `told` is its answer afterwards."""

    def __init__(self, scene: Scene, device_id: str, at: Point) -> None:
        self.told = ""
        self._stopped, self._go_on = threading.Event(), threading.Event()
        held = scene.caller()
        self._caller = Caller(held.connection, held.redis, self._stop(at), held.patience_seconds)
        self._thread = threading.Thread(target=self._register, args=(scene, device_id), daemon=True)

    def _stop(self, at: Point) -> Callable[[Point, int], None]:
        def pause(point: Point, _user_id: int) -> None:
            if point is at:
                self._stopped.set()
                self._go_on.wait(DONE_SECONDS)

        return pause

    def _register(self, scene: Scene, device_id: str) -> None:
        try:
            self.told = scene.told(self._caller, device_id)
        finally:
            self._stopped.set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._stopped.wait(DONE_SECONDS)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._go_on.set()
        self._thread.join(DONE_SECONDS)


def hold_until_killed(strategy_name: str, address: Address, redis_url: str | None, pipe: Pipe) -> None:
    """A process that takes the lock, says so, and never lets go of it by itself."""

    def pause(point: Point, _user_id: int) -> None:
        if point is Point.COUNTED:
            pipe.send("held")
            threading.Event().wait()

    strategy = BY_NAME[strategy_name]
    client = redis_client(redis_url) if redis_url and strategy.needs is Need.REDIS else None
    strategy.register(Caller(address.connect(strategy.isolation), client, pause), USER, "first", PLACES)
