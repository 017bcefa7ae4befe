"""One call at a time, and the row that it leaves."""

from collections.abc import Callable
from typing import Any

import httpx
from sqlalchemy import Engine, text

NewUser = Callable[[], int]


def register(api: httpx.Client, user: int, **body: Any) -> httpx.Response:
    return api.post(f"/v1/users/{user}/devices", json=body)


def address(user: int, device_id: str, call: str = "") -> str:
    return f"/v1/users/{user}/devices/{device_id}{call}"


def listed(api: httpx.Client, user: int) -> list[str]:
    """The ids of the user's devices, oldest first."""
    return [device["device_id"] for device in api.get(f"/v1/users/{user}/devices").json()["items"]]


def quota_of(api: httpx.Client, user: int) -> Any:
    return api.get(f"/v1/users/{user}/quota").json()


def set_limit(api: httpx.Client, user: int, limit: int) -> None:
    assert api.put(f"/v1/users/{user}/quota", json={"limit": limit}).status_code == 200


def trail(api: httpx.Client, user: int) -> list[Any]:
    """The user's events, oldest first."""
    page = api.get(f"/v1/users/{user}/events", params={"limit": 100}).json()
    assert page["next_cursor"] is None
    return list(reversed(page["items"]))


def happened(api: httpx.Client, user: int) -> list[tuple[str, str | None]]:
    """What the trail says in short: type and device, oldest first."""
    return [(event["type"], event["device_id"]) for event in trail(api, user)]


def row_of(auditor: Engine, user: int, device_id: str) -> Any:
    with auditor.connect() as connection:
        query = text("SELECT * FROM devices WHERE user_id = :user AND device_id = :device")
        return connection.execute(query, {"user": user, "device": device_id}).one_or_none()


def end_lease(auditor: Engine, user: int, *device_ids: str) -> None:
    """Have the leases run out a moment ago."""
    query = text(
        "UPDATE devices SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND, lease_seconds = 60"
        " WHERE user_id = :user AND device_id = :device"
    )
    with auditor.connect() as connection:
        for device_id in device_ids:
            assert connection.execute(query, {"user": user, "device": device_id}).rowcount == 1
