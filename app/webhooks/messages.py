"""What receivers are told: made anew for each attempt from what does not change, so it is the same bytes."""

import json
from typing import Any

from app.texts import rfc3339
from app.webhooks.deliveries import Delivery

# What Standard Webhooks recommends; the bounds of texts and metadata keep every event below it.
MOST_MESSAGE_BYTES = 20_000


def webhook_id(delivery_id: int, event_id: int | None, endpoint_id: int) -> str:
    """By what a receiver knows a repeat: of one event at one endpoint it is the same at each attempt."""
    return f"test_{delivery_id}_{endpoint_id}" if event_id is None else f"evt_{event_id}_{endpoint_id}"


def id_of(delivery: Delivery) -> str:
    event_id = None if delivery.event is None else delivery.event.id
    return webhook_id(delivery.id, event_id, delivery.endpoint.id)


def body_of(delivery: Delivery) -> bytes:
    """`{type, timestamp, data}` as UTF-8, at most 20 kB; `timestamp` is when it happened."""
    message = {"type": delivery.type, "timestamp": rfc3339(delivery.at), "data": _data(delivery)}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _data(delivery: Delivery) -> dict[str, Any]:
    event = delivery.event
    if event is None:
        return {"endpoint_id": str(delivery.endpoint.id)}
    return {
        "event_id": str(event.id),
        "user_id": str(event.user_id),
        "device_id": event.device_id,
        "actor": event.actor,
        "reason": event.reason,
        "request_id": event.request_id,
        "data": event.data,
    }
