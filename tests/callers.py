"""Many calls at once: all of them stand ready before the first is sent."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import httpx

from tests.services import Service


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    json: object = None


def register(user_id: int, device_id: str) -> Call:
    return Call("POST", f"/v1/users/{user_id}/devices", {"device_id": device_id})


def revoke(user_id: int, device_id: str) -> Call:
    return Call("DELETE", f"/v1/users/{user_id}/devices/{device_id}")


def at_once(service: Service, calls: Sequence[Call]) -> list[httpx.Response]:
    """The answers in the order of the calls, which a barrier lets go together, each on a warm connection."""
    return in_rounds(service, [calls])[0]


def in_rounds(service: Service, rounds: Iterable[Sequence[Call]]) -> list[list[httpx.Response]]:
    """`at_once` for each of the rounds, over the same connections."""
    return asyncio.run(_in_rounds(service, rounds))


async def _in_rounds(service: Service, rounds: Iterable[Sequence[Call]]) -> list[list[httpx.Response]]:
    async with service.async_client() as client:
        return [await _at_once(client, calls) for calls in rounds]


async def _at_once(client: httpx.AsyncClient, calls: Sequence[Call]) -> list[httpx.Response]:
    barrier = asyncio.Barrier(len(calls))

    async def send(call: Call) -> httpx.Response:
        await client.get("/livez")
        await barrier.wait()
        return await client.request(call.method, call.path, json=call.json)

    return await asyncio.gather(*(send(call) for call in calls))


def one_by_one(service: Service, calls: Iterable[Call]) -> list[httpx.Response]:
    with service.client() as client:
        return [client.request(call.method, call.path, json=call.json) for call in calls]


def statuses(responses: Iterable[httpx.Response]) -> Counter[int]:
    return Counter(response.status_code for response in responses)
