"""Events as callers see them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.texts import EventType, Instant, SerialAsText

EXAMPLE: dict[str, Any] = {
    "id": "1042",
    "type": "device.revoked",
    "device_id": "3f6c1a50-phone",
    "actor": "root_key",
    "reason": "lost phone",
    "request_id": "0193b0a2-7c5f-7d31-9b1e-5f0f6a1d2c3b",
    "occurred_at": "2026-11-30T09:31:00.123456Z",
    "data": {},
}
EXAMPLE_CURSOR = "ZXZlbnRzfDIwMjYtMTEtMzBUMDk6MzE6MDAuMTIzNDU2fDEwNDI"


class Event(BaseModel):
    """One thing that happened."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: SerialAsText
    type: EventType
    device_id: str | None
    actor: str = Field(description="The key that asked for it, or the part of the service that did it.")
    reason: str | None
    request_id: str = Field(description="The X-Request-ID of the call.")
    occurred_at: Instant
    data: dict[str, Any] = Field(description="What the type has to say beyond its name.")


class EventList(BaseModel):
    """A page of events, newest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [EXAMPLE], "next_cursor": EXAMPLE_CURSOR}]}
    )

    items: list[Event]
    next_cursor: str | None = Field(description="Send as `cursor` for the next page; null at the end.")
