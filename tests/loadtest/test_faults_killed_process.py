"""A process of the service that is killed in the middle of many registrations, with locks in its hands."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.services import PATIENT, Service, running_service

NewUser = Callable[[], int]
Calls = Iterator[tuple[int, str]]

LIMIT = 10
USERS = 100  # each with as many calls as it may have devices, one after the other: callers meet at every user
CALLERS = 8
KILL_AFTER = 300  # answers
LONGEST_WAIT_SECONDS = 1.0


class Callers:
    """They share the calls. Whose connection is lost asks again, and from then on the other replica."""

    def __init__(self, replicas: list[Service], when_answered: Callable[[int], None]) -> None:
        self._replicas, self._when_answered = replicas, when_answered
        self.statuses: Counter[int] = Counter()
        self.answered: list[tuple[float, float]] = []  # sent, finished: of the calls that were not lost
        self.lost = 0

    async def register(self, calls: Calls) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(CALLERS):
                tasks.create_task(self._register(calls, number % len(self._replicas)))

    async def _register(self, calls: Calls, at: int) -> None:
        async with AsyncExitStack() as stack:
            replicas = [await stack.enter_async_context(_client(one)) for one in self._replicas]
            await asyncio.gather(*(replica.get("/livez") for replica in replicas))
            for user, device in calls:
                sent = time.monotonic()
                try:
                    status = await _status(replicas[at], user, device)
                    self.answered.append((sent, time.monotonic()))
                except httpx.TransportError:
                    self.lost += 1
                    at = (at + 1) % len(replicas)
                    status = await _status(replicas[at], user, device)
                self.statuses[status] += 1
                self._when_answered(self.statuses.total())


def _client(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=60)


async def _status(client: httpx.AsyncClient, user: int, device: str) -> int:
    answer = await client.post(f"/v1/users/{user}/devices", json={"device_id": device})
    return answer.status_code


@pytest.mark.locking
def test_a_process_killed_amid_1000_registrations_holds_nobody_up_and_loses_nothing(
    database_url: str, folder: Path, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(USERS)]
    with ExitStack() as stack:
        victim, other = (
            stack.enter_context(running_service(database_url, folder, default_device_limit=LIMIT, **PATIENT))
            for _ in range(2)
        )

        killed_at: list[float] = []

        def kill_in_the_middle(answers: int) -> None:
            if answers == KILL_AFTER:
                killed_at.append(time.monotonic())
                victim.process.kill()

        callers = Callers([victim, other], kill_in_the_middle)
        asyncio.run(callers.register((user, f"d{n}") for user in users for n in range(LIMIT)))
    assert callers.lost > 0
    # A lost call may have had its effect: asked again, it finds the device.
    assert callers.statuses[201] + callers.statuses[200] == USERS * LIMIT, callers.statuses
    assert callers.statuses[200] <= callers.lost
    (killed,) = killed_at
    waits = [finished - max(sent, killed) for sent, finished in callers.answered if finished > killed]
    assert max(waits) <= LONGEST_WAIT_SECONDS
    with auditor.connect() as rows:
        query = text("SELECT COUNT(*) FROM devices WHERE user_id = :user")
        assert {rows.execute(query, {"user": user}).scalar_one() for user in users} == {LIMIT}
