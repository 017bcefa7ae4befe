"""Many calls at once: all of them stand ready before the first is sent."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx

from tests.services import Service


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    json: object = None
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send_by(self, caller: httpx.AsyncClient) -> httpx.Response:
        return await caller.request(self.method, self.path, json=self.json, headers=self.headers)


def register(user_id: int, device_id: str, **fields: object) -> Call:
    return Call("POST", f"/v1/users/{user_id}/devices", {"device_id": device_id, **fields})


def revoke(user_id: int, device_id: str) -> Call:
    return Call("DELETE", f"/v1/users/{user_id}/devices/{device_id}")


def at_once(service: Service, calls: Sequence[Call]) -> list[httpx.Response]:
    """The answers in the order of the calls, which a barrier lets go together, each on a warm connection."""
    return in_rounds(service, [calls])[0]


def in_rounds(service: Service, rounds: Sequence[Sequence[Call]]) -> list[list[httpx.Response]]:
    """`at_once` for each of the rounds, over the same connections."""
    return asyncio.run(_in_rounds(service, rounds))


async def _in_rounds(service: Service, rounds: Sequence[Sequence[Call]]) -> list[list[httpx.Response]]:
    async with _callers(service, max(map(len, rounds))) as callers:
        return [await _at_once(callers[: len(calls)], calls) for calls in rounds]


async def _at_once(callers: list[httpx.AsyncClient], calls: Sequence[Call]) -> list[httpx.Response]:
    barrier = asyncio.Barrier(len(calls))

    async def send(caller: httpx.AsyncClient, call: Call) -> httpx.Response:
        await barrier.wait()
        return await call.send_by(caller)

    return await asyncio.gather(*map(send, callers, calls))


@asynccontextmanager
async def _callers(service: Service, number: int) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients of one warm connection each: a pool of many would spend more time on itself than on calls."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and costly to make for each client
    # The service closes what has been idle for 5 s, which no call must meet while it is being sent.
    limits = httpx.Limits(keepalive_expiry=3)
    async with AsyncExitStack() as stack:
        clients = [
            httpx.AsyncClient(
                base_url=service.url, headers=service.headers, timeout=60, verify=tls, limits=limits
            )
            for _ in range(number)
        ]
        for client in clients:
            await stack.enter_async_context(client)
        await asyncio.gather(*(client.get("/livez") for client in clients))
        yield clients


def by_many(service: Service, calls: Sequence[Call], callers: int) -> list[httpx.Response]:
    """The answers in the order of the calls; each caller takes the next call as soon as it has its answer."""
    return asyncio.run(_by_many(service, calls, callers))


async def _by_many(service: Service, calls: Sequence[Call], number: int) -> list[httpx.Response]:
    answers: dict[int, httpx.Response] = {}
    waiting = iter(enumerate(calls))

    async def work(caller: httpx.AsyncClient) -> None:
        for place, call in waiting:
            answers[place] = await call.send_by(caller)

    async with _callers(service, number) as callers:
        await asyncio.gather(*map(work, callers))
    return [answers[place] for place in range(len(calls))]


def one_by_one(service: Service, calls: Iterable[Call]) -> list[httpx.Response]:
    with service.client() as client:
        return [
            client.request(call.method, call.path, json=call.json, headers=call.headers) for call in calls
        ]


def statuses(responses: Iterable[httpx.Response]) -> Counter[int]:
    return Counter(response.status_code for response in responses)
