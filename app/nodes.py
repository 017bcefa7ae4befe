"""The database's nodes: which one a user's calls are led to, and which are left out until they are fit again.

Nothing here holds the limit: the lock protocol does, on whatever node a call comes to. See
docs/decisions/0032-calls-of-a-user-prefer-one-node.md.
"""

import asyncio
import logging
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from hashlib import blake2b
from typing import Any

from anyio import CapacityLimiter
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app import metrics
from app.engines import make_engine
from app.failures import Failure, is_unanswered
from app.fitness import NodeUnfit, look_at_node
from app.sessions import SessionRefused
from app.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.1  # between two looks at a node that is out
LONGEST_PAUSE_SECONDS = 1.0
ANSWER_SECONDS = 1
# A node that did not answer two looks in a row hangs. All of that is less than a call waits for a connection.
ENOUGH_LOOKS = 2
MOST_GROUPS = 4  # of calls that share a transaction, at once in each process
NOBODY = 0  # no user's id: for calls of no user, which so have a node of their own


class Node:
    """One server of the database: the connections to it, and whether it is out."""

    def __init__(self, settings: Settings, url: URL) -> None:
        self.name = f"{url.host}:{url.port}"
        self.engine = make_engine(settings, url, pool_size=settings.database_pool_size)
        # Apart: calls that wait for a user's lock may have all of the others.
        self.engine_of_groups = make_engine(settings, url, pool_size=MOST_GROUPS)
        self.free_connections = asyncio.Semaphore(settings.database_pool_size)
        self.threads = CapacityLimiter(settings.database_pool_size)
        self.is_out = False
        self.is_doubted = threading.Event()
        self._size = settings.database_pool_size
        self._key = blake2b(self.name.encode(), digest_size=32).digest()

    def weight_of(self, user_id: int) -> bytes:
        """By which the user's calls prefer this node to those that weigh less: the same in each process.

        Rendezvous hashing (Thaler and Ravishankar 1998): a node that goes moves its own users only.
        """
        return blake2b(user_id.to_bytes(8), key=self._key, digest_size=8).digest()

    def doubt_after(self, failure: Failure) -> None:
        """Lead calls elsewhere until it has been looked at, if what failed may be the node's own fault.

        One connection that was lost is no lost node, and costs it its calls for as long as a look takes. So
        does a lock time-out, by which a read ends that has waited too long for the other nodes' writes.
        """
        if failure.kind in {"lost_connection", "lock_timeout", "unfit"}:
            self.is_out = True
            self.is_doubted.set()

    def open_connections(self) -> None:
        """Fill the pool, as far as the node lets."""
        with ExitStack() as opened, suppress(SQLAlchemyError, SessionRefused):
            for _ in range(self._size):
                opened.enter_context(self.engine.connect())

    def close(self) -> None:
        self.engine.dispose()
        self.engine_of_groups.dispose()


class Watch(threading.Thread):
    """Looks at one node each second, at once when it is doubted, and often while it is out.

    So no call pays for finding out that a node is still away, or is back.
    """

    def __init__(self, settings: Settings, node: Node, others: list[Node]) -> None:
        super().__init__(name=f"watch {node.name}", daemon=True)
        self._node = node
        self._others = others
        self._engine = make_engine(settings, node.engine.url, pool_size=1, patience_seconds=ANSWER_SECONDS)
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._adding = threading.Lock()
        for engine in (node.engine, node.engine_of_groups):
            event.listen(engine, "connect", self._note, insert=True)  # before it waits for the node
        self._is_ending = False
        self._failed_looks = 0
        self._out_since = 0.0

    def _note(self, connection: Any, _record: Any) -> None:
        with self._adding:
            self._connections.add(connection)

    def run(self) -> None:
        pause_seconds = 0.0
        while not self._is_ending:
            self._node.is_doubted.wait(pause_seconds)
            self._node.is_doubted.clear()
            if self._is_ending:
                break
            reason = self._look()
            if reason is None:
                self._take_back()
                pause_seconds = LOOK_SECONDS
            else:
                self._take_out(reason)
                longer = FIRST_PAUSE_SECONDS * 2.0 ** min(self._failed_looks - 1, 10)
                pause_seconds = min(LONGEST_PAUSE_SECONDS, longer)
        self._engine.dispose()

    def end(self) -> None:
        self._is_ending = True
        self._node.is_doubted.set()
        self.join()

    def _look(self) -> Exception | None:
        """Why the node is not fit for calls, or None."""
        try:
            with self._engine.connect() as connection:
                look_at_node(connection)
                connection.rollback()
        except (SQLAlchemyError, SessionRefused, NodeUnfit) as error:
            return error
        return None

    def _take_back(self) -> None:
        self._node.is_out = False
        metrics.NODE_UP.labels(self._node.name).set(1)
        if self._failed_looks:
            seconds = time.monotonic() - self._out_since
            log.warning("Database node %s is in use again, after %.1f s", self._node.name, seconds)
        self._failed_looks = 0

    def _take_out(self, reason: Exception) -> None:
        self._node.is_out = True
        metrics.NODE_UP.labels(self._node.name).set(0)
        said = reason.orig if isinstance(reason, DBAPIError) else reason
        if not self._failed_looks:
            self._out_since = time.monotonic()
            log.error("Database node %s is taken out: %s", self._node.name, said)
        self._failed_looks += 1
        self._node.close()
        is_silent = isinstance(reason, DBAPIError) and is_unanswered(reason)
        # A cluster that has lost a node answers nothing until it has agreed on that, and then goes on.
        has_a_fit_one = not all(other.is_out for other in self._others)
        if is_silent and has_a_fit_one and self._failed_looks >= ENOUGH_LOOKS:
            self._cut_connections()

    def _cut_connections(self) -> None:
        """Have the calls that wait for a server which is stopped or cut off run again on another node."""
        with self._adding:
            connections = list(self._connections)
        for connection in connections:
            # None: it is closed. Not by TLS's own shutdown, which would talk to the server first.
            if connection._sock is not None:  # noqa: SLF001 - PyMySQL has no other way to it
                with suppress(OSError):
                    socket.socket.shutdown(connection._sock, socket.SHUT_RDWR)  # noqa: SLF001


class Nodes:
    """All of them. Where there is only one, it is never out, and nothing looks at it."""

    def __init__(self, settings: Settings) -> None:
        self._all = [Node(settings, url) for url in settings.urls]
        self.are_several = len(self._all) > 1
        self.several_writers = False  # as the newest transaction found it
        self._watches = [
            Watch(settings, node, others=[other for other in self._all if other is not node])
            for node in self._all
            if self.are_several
        ]
        for watch in self._watches:
            watch.start()

    def __iter__(self) -> Iterator[Node]:
        return iter(self._all)

    def node_of(self, user_id: int) -> Node:
        """The one that the user's calls prefer among those that are in use; among all, if none is."""
        if not self.are_several:
            return self._all[0]
        in_use = [node for node in self._all if not node.is_out]
        return max(in_use or self._all, key=lambda node: node.weight_of(user_id))

    def close(self) -> None:
        for watch in self._watches:
            watch.end()
        for node in self._all:
            node.close()
