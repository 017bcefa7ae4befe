"""The load: clients of a few users at a time, each of whom waits for an answer before its next call."""

import asyncio
import dataclasses
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx

from loadtest.client import LOST, NOT_CONNECTED, TIMEOUT
from loadtest.connection import OneConnection
from loadtest.linearizability import Operation, Quota
from loadtest.linearizability.operation import Kind

CALL_SECONDS = 12.0  # more than the service takes for any call, its budget and its queue included
# As a client that heeds Retry-After. It also keeps short what the checker must try: each call of unknown
# outcome may have happened at any later instant, or never.
PAUSE_AFTER_UNKNOWN_SECONDS = 1.0
MOST_UNKNOWN = 10
SPARE_DEVICES = 3  # more than the limit: so many that some are always refused, so few that they meet again
WEIGHTS = {"register": 40, "replace": 10, "revoke": 22, "list": 15, "quota": 8, "set_limit": 5}
FIRST_USER, USERS_OF_A_SEED = 2**52, 2**20


@dataclasses.dataclass(frozen=True)
class Plan:
    """`groups` users at a time have `clients` each, who make `calls` together before a new user comes.
    Between two calls a client thinks for `pause_seconds` on average."""

    seed: int
    limit: int
    groups: int = 3
    clients: int = 5
    calls: int = 150
    pause_seconds: float = 0.2

    def users(self) -> Iterator[int]:
        return itertools.count(FIRST_USER + self.seed * USERS_OF_A_SEED)


class Group:
    """The clients of one user, until that one has had its calls and a new one comes."""

    def __init__(self, plan: Plan, users: Iterator[int]) -> None:
        self._plan, self._users = plan, users
        self._next_user()

    def _next_user(self) -> None:
        self._user, self._calls, self._unknown = next(self._users), 0, 0

    def user_of_next_call(self) -> int:
        if self._calls >= self._plan.calls or self._unknown >= MOST_UNKNOWN:
            self._next_user()
        self._calls += 1
        return self._user

    def heard(self, operation: Operation) -> None:
        if operation.unknown and operation.user == self._user:
            self._unknown += 1


@dataclasses.dataclass(frozen=True)
class Ask:
    """What a call asks for, before it has a user and an answer."""

    kind: Kind
    device: str = ""
    replaced: str = ""
    limit: int | None = None

    def request(self, user: int) -> tuple[str, str, dict[str, Any] | None]:
        """Method, path and body."""
        of_user = f"/v1/users/{user}"
        match self.kind:
            case "register":
                replaced = {"replace_device_id": self.replaced} if self.replaced else {}
                return "POST", f"{of_user}/devices", {"device_id": self.device, **replaced}
            case "revoke":
                return "DELETE", f"{of_user}/devices/{self.device}", None
            case "list":
                return "GET", f"{of_user}/devices", None
            case "set_limit" if self.limit is not None:
                return "PUT", f"{of_user}/quota", {"limit": self.limit}
            case "set_limit":
                return "DELETE", f"{of_user}/quota", None
        return "GET", f"{of_user}/quota", None


def next_ask(draw: random.Random, limit: int) -> Ask:
    names = [f"d{n}" for n in range(limit + SPARE_DEVICES)]
    device, other = draw.sample(names, 2)
    kind = draw.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
    match kind:
        case "replace":
            return Ask("register", device, replaced=other)
        case "register":
            return Ask("register", device)
        case "revoke":
            return Ask("revoke", device)
        case "set_limit":
            return Ask("set_limit", limit=draw.choice([None, *range(1, limit + 3)]))
    return Ask("list" if kind == "list" else "quota")


class Caller:
    """One client: it keeps to one replica, and goes to the next one where nobody listens."""

    def __init__(self, number: int, targets: Sequence[str], key: str) -> None:
        self._number, self._key = number, key
        self._lines = [OneConnection(httpx.URL(target), None) for target in targets]
        self._targets = targets
        self._at = number % len(targets)

    async def call(self, ask: Ask, user: int) -> Operation:
        """Whatever happens is an operation; its process begins with the replica's name."""
        process = f"replica {self._at + 1}, client {self._number + 1}"
        sent = time.perf_counter()
        status, code, told = await self._answer(*ask.request(user))
        finished = time.perf_counter()
        if code == NOT_CONNECTED:
            self._at = (self._at + 1) % len(self._lines)
        said = {"status": status, "code": code, **_said(ask.kind, status, told)}
        return Operation(user, process, ask.kind, sent, finished, ask.device, ask.replaced, ask.limit, **said)

    async def _answer(self, method: str, path: str, body: Any) -> tuple[int, str, Any]:
        request = httpx.Request(
            method,
            self._targets[self._at] + path,
            json=body,
            headers={"Authorization": f"Bearer {self._key}", "Accept": "application/json"},
        )
        try:
            async with asyncio.timeout(CALL_SECONDS):
                response = await self._lines[self._at].handle_async_request(request)
            told = json.loads(response.content) if response.content else {}
        except TimeoutError:
            return 0, TIMEOUT, {}
        except httpx.ConnectError:
            return 0, NOT_CONNECTED, {}
        except (httpx.TransportError, ValueError):
            return 0, LOST, {}
        return response.status_code, str(told.get("code", "")), told

    def close(self) -> None:
        for line in self._lines:
            line.close()


def _said(kind: Kind, status: int, told: Any) -> dict[str, Any]:
    """What the answer says of the devices or of the quota, as an operation has it."""
    if kind == "list":
        return {"seen": tuple(item["device_id"] for item in told["items"])} if status == 200 else {}
    if kind == "register":
        quota = told.get("quota") if status in (200, 201) else told if status == 409 else None
    else:
        quota = told if status == 200 else None
    return {"quota": Quota(int(quota["used"]), int(quota["limit"]))} if quota and "used" in quota else {}


class Load:
    """The clients' loop; `hear` gets each operation when its call has ended. Runs in a thread of its own."""

    def __init__(
        self, plan: Plan, targets: Sequence[str], key: str, hear: Callable[[Operation], None]
    ) -> None:
        self._plan, self._targets, self._key, self._hear = plan, targets, key, hear
        self._is_over = False

    def run(self) -> None:
        """Until `stop`, and then until the calls under way have ended."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """From any thread."""
        self._is_over = True

    async def _run(self) -> None:
        users = self._plan.users()
        groups = [Group(self._plan, users) for _ in range(self._plan.groups)]
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._plan.groups * self._plan.clients):
                tasks.create_task(self._call_again_and_again(number, groups[number % len(groups)]))

    async def _call_again_and_again(self, number: int, group: Group) -> None:
        draw = random.Random(f"{self._plan.seed} {number}")  # noqa: S311 - spreads load, guards no secret
        caller = Caller(number // self._plan.groups, self._targets, self._key)
        try:
            while not self._is_over:
                ask = next_ask(draw, self._plan.limit)
                operation = await caller.call(ask, group.user_of_next_call())
                group.heard(operation)
                self._hear(operation)
                pause = draw.expovariate(1 / self._plan.pause_seconds)
                await asyncio.sleep(PAUSE_AFTER_UNKNOWN_SECONDS if operation.unknown else pause)
        finally:
            caller.close()
