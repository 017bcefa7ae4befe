"""One call at a time, and the row that it leaves."""

from collections.abc import Callable
from typing import Any

import httpx
from sqlalchemy import Engine, text

NewUser = Callable[[], int]


def register(api: httpx.Client, user: int, **body: Any) -> httpx.Response:
    return api.post(f"/v1/users/{user}/devices", json=body)


def row_of(auditor: Engine, user: int, device_id: str) -> Any:
    with auditor.connect() as connection:
        query = text("SELECT * FROM devices WHERE user_id = :user AND device_id = :device")
        return connection.execute(query, {"user": user, "device": device_id}).one_or_none()
