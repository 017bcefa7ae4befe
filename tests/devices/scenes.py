"""Registrations of one process that meet, step by step: the proxy holds one while others come."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from app.db import Database
from app.devices.group_service import Call
from app.devices.groups import Groups
from app.devices.schemas import NewDevice
from app.devices.service import Registered
from app.nodes import NOBODY
from app.settings import load_settings
from tests.lifecycle.steps import connection_id
from tests.lifecycle.trail import devices_of, types_of
from tests.proxy import Fate, Proxy, proxied
from tests.services import ROOT_KEY
from tests.use_cases import LIMIT, ORIGIN

NewUser = Callable[[], int]
Result = Registered | BaseException
PATIENCE_SECONDS = 20
# What a group's first transaction begins with, and its second.
LOOKS, LOCKS = "JSON_TABLE", "SKIP LOCKED"
KINDS = {
    LOCKS: "LOCK THOSE FREE",
    "FOR UPDATE": "LOCK",
    "INSERT IGNORE": "INSERT LOCK ROWS",
    "INSERT INTO devices": "INSERT DEVICES",
    "INSERT INTO events": "INSERT EVENTS",
    "UPDATE devices": "UPDATE DEVICE",
    LOOKS: "LOOK",
    "COMMIT": "COMMIT",
    "ROLLBACK": "ROLLBACK",
}


class Gate:
    """The first statement with these words, after one with `after`, waits at the proxy for the gate to open.

    Then it has its fate.
    """

    def __init__(self, words: str, fate: Fate = Fate.PASS, after: str = "") -> None:
        self._words, self.fate, self._after = words, fate, after
        self._is_near = False
        self._reached, self._open = threading.Event(), threading.Event()

    @property
    def is_passed(self) -> bool:
        return self._reached.is_set()

    def decide(self, statement: str) -> Fate:
        self._is_near = self._is_near or self._after in statement
        if not self._is_near or self._words not in statement or self.is_passed:
            return Fate.PASS
        self._reached.set()
        assert self._open.wait(PATIENCE_SECONDS)
        return self.fate

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_SECONDS)

    def open(self) -> None:
        self._open.set()


@dataclass
class Scene:
    """The registrations of one process, behind a proxy."""

    db: Database
    groups: Groups
    proxy: Proxy
    new_user: NewUser
    gates: list[Gate] = field(default_factory=list)

    def gate_at(self, words: str, after: str = LOOKS) -> Gate:
        """In the way of a group, unless `after` says otherwise."""
        self.gates.append(Gate(words, after=after))
        return self.gates[-1]

    def lose(self, words: str, fate: Fate, after: str = LOOKS) -> Gate:
        """Have such a statement of a group lose its connection."""
        gate = Gate(words, fate, after)
        gate.open()
        self.gates.append(gate)
        return gate

    def decide(self, statement: str) -> Fate:
        fates = [gate.decide(statement) for gate in list(self.gates)]
        return next((fate for fate in fates if fate is not Fate.PASS), Fate.PASS)

    def call(self, user: int, device: str = "a", **fields: Any) -> asyncio.Task[Registered]:
        made = Call(ORIGIN, user, device, NewDevice.model_validate(fields))
        return asyncio.create_task(self.groups.register(made))

    @asynccontextmanager
    async def while_another_is_served(self) -> AsyncIterator[None]:
        """Calls that come inside the block wait for one that is in the database until the block ends."""
        gate = self.gate_at("INSERT INTO devices", after="")
        first = self.call(self.new_user())
        await gate.reached()
        try:
            yield
            await asyncio.sleep(0)  # who was started in the block comes as far as the queue
        finally:
            self.proxy.statements.clear()
            gate.open()
        assert (await first).created

    async def together(self, *calls: tuple[int, str]) -> list[Result]:
        async with self.while_another_is_served():
            under_way = [self.call(user, device) for user, device in calls]
        return await all_of(under_way)

    def sent(self) -> list[str]:
        """What went over the wire since the gate was opened."""
        found = [
            next((KINDS[words] for words in KINDS if words in one), None) for one in self.proxy.statements
        ]
        return [kind for kind in found if kind]


async def all_of(under_way: list[asyncio.Task[Registered]]) -> list[Result]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.gather(*under_way, return_exceptions=True)


def registered(results: list[Result]) -> list[str]:
    """The device that each has got, all of which are new."""
    assert all(isinstance(one, Registered) and one.created for one in results), results
    return [one.device.device_id for one in results if isinstance(one, Registered)]


@contextmanager
def scene_at(database_url: str, new_user: NewUser, **settings: Any) -> Iterator[Scene]:
    with proxied(database_url) as (proxy, url):
        made = load_settings(database_url=url, root_key=ROOT_KEY, default_device_limit=LIMIT, **settings)
        db = Database(made)
        try:
            db.transact(connection_id)  # opening a connection ends by a COMMIT too
            db.attempt(db.node_of(NOBODY), connection_id)
            scene = Scene(db, Groups(db, made), proxy, new_user)
            proxy.fate = scene.decide
            yield scene
        finally:
            proxy.thaw()
            db.close()


def one_row_and_event_each(auditor: Engine, users: list[int], device: str = "a") -> None:
    for user in users:
        assert devices_of(auditor, user) == [device]
        assert types_of(auditor, user) == ["device.registered"]
