"""A process that ends while a group of its calls is in the database."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from tests.devices.scenes import LOCKS, Gate, one_row_and_event_each
from tests.lifecycle.trail import devices_of
from tests.proxy import Fate, proxied
from tests.services import Service, running_service
from tests.test_ending import PATIENCE_SECONDS, refuses_connections, wait_until

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]
CALLS = 12


@dataclass(frozen=True)
class InMidCommit:
    """Calls under way to a service; the COMMIT of a group of them waits at the proxy."""

    service: Service
    commit: Gate
    answers: asyncio.Future[list[httpx.Response | BaseException]]

    def statuses(self) -> list[int | None]:
        """None of a call that got no answer."""
        found = self.answers.result()
        assert all(isinstance(one, httpx.Response | httpx.TransportError) for one in found), found
        return [one.status_code if isinstance(one, httpx.Response) else None for one in found]


@asynccontextmanager
async def in_mid_commit(database_url: str, folder: Path, users: list[int]) -> AsyncIterator[InMidCommit]:
    async with AsyncExitStack() as stack:
        proxy, url = stack.enter_context(proxied(database_url))
        service = stack.enter_context(running_service(url, folder))
        api = await stack.enter_async_context(
            httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=PATIENCE_SECONDS)
        )
        commit = Gate("COMMIT", after=LOCKS)
        proxy.fate = commit.decide
        calls = (api.post(f"/v1/users/{user}/devices", json={"device_id": "a"}) for user in users)
        answers = asyncio.gather(*calls, return_exceptions=True)
        await commit.reached()
        try:
            yield InMidCommit(service, commit, answers)
        finally:
            commit.open()
            await answers


def test_sigterm_in_mid_commit_lets_all_have_their_201(
    database_url: str, folder: Path, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(CALLS)]

    async def end() -> InMidCommit:
        async with in_mid_commit(database_url, folder, users) as held:
            held.service.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(wait_until, lambda: refuses_connections(held.service))
            held.commit.open()
            await held.answers
            assert await asyncio.to_thread(held.service.process.wait, PATIENCE_SECONDS) == 0
        return held

    assert asyncio.run(end()).statuses() == [201] * CALLS
    one_row_and_event_each(auditor, users)


@pytest.mark.parametrize("fate", [Fate.CUT_BEFORE, Fate.PASS], ids=["not-committed", "committed"])
def test_kill_in_mid_commit_leaves_no_201_without_its_row(
    fate: Fate, database_url: str, folder: Path, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(CALLS)]

    async def end() -> InMidCommit:
        async with in_mid_commit(database_url, folder, users) as held:
            held.commit.fate = fate
            held.service.process.kill()
            await asyncio.to_thread(held.service.process.wait, PATIENCE_SECONDS)
            held.commit.open()
            await held.answers
        return held

    statuses = asyncio.run(end()).statuses()
    assert None in statuses, "the group was answered"
    for user, status in zip(users, statuses, strict=True):
        if status is not None:
            assert (status, devices_of(auditor, user)) == (201, ["a"])
