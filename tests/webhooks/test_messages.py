"""What receivers are told of an event, which is small whatever the device is called."""

import datetime
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from app.webhooks.deliveries import Delivery, Endpoint, Occurrence
from app.webhooks.messages import MOST_MESSAGE_BYTES, body_of
from tests.single_calls import NewUser, address, register

METADATA_BYTES = 4096


def delivery_of(row: Any) -> Delivery:
    event = Occurrence(
        row.id, row.user_id, row.device_id, row.actor, row.reason, row.request_id, json.loads(row.data)
    )
    return Delivery(1, "t", Endpoint(2**63, "", ()), row.type, row.occurred_at, 1, event)


def bodies(auditor: Engine, user: int) -> Iterator[bytes]:
    """The message of each event of the user, oldest first, made twice."""
    with auditor.connect() as connection:
        query = text("SELECT * FROM events WHERE user_id = :user ORDER BY id")
        rows = connection.execute(query, {"user": user}).all()
    for row in rows:
        body = body_of(delivery_of(row))
        assert body_of(delivery_of(row)) == body
        yield body


def metadata_of(letter: str) -> dict[str, str]:
    """As much metadata as may be, of this letter, which JSON may have to write as several."""
    value = letter
    while (
        len(json.dumps({"a": value + letter}, ensure_ascii=False, separators=(",", ":")).encode())
        <= METADATA_BYTES
    ):
        value += letter
    return {"a": value}


LETTERS = ["x", '"', "\\", "/", "é", "я", "ع", "携", "한", "𝌆", "\N{WOMAN}", "\u2028", "\u200d", "<", "&"]


@pytest.mark.parametrize("letter", [*LETTERS, "\x01"], ids=ascii)
def test_the_largest_events_in_every_alphabet_stay_below_20_kb(
    api: httpx.Client, auditor: Engine, new_user: NewUser, letter: str
) -> None:
    user = new_user()
    device = "d" * 128
    metadata = metadata_of(letter)
    plain = letter if letter.isprintable() or letter == "\u2028" else "𝌆"
    largest = {
        "model": plain * 64,
        "os_version": plain * 64,
        "app_version": plain * 64,
        "platform": "android",
    }
    api.headers["X-Request-ID"] = "r" * 128
    try:
        made = register(api, user, device_id=device, name=plain * 100, metadata=metadata, **largest)
        assert made.status_code == 201, made.text
        api.patch(address(user, device), json={"name": plain, "metadata": {"a": None, "b": metadata["a"]}})
        revoked = api.delete(address(user, device), params={"reason": plain * 500, "block": True})
        assert revoked.status_code == 204
    finally:
        del api.headers["X-Request-ID"]
    told = list(bodies(auditor, user))
    assert len(told) >= 3
    assert max(map(len, told)) > METADATA_BYTES
    assert max(map(len, told)) <= MOST_MESSAGE_BYTES / 2
    registered = json.loads(told[0])
    assert registered["type"] == "device.registered"
    assert registered["data"]["user_id"] == str(user)
    assert registered["data"]["data"]["metadata"] == metadata


def test_numbers_are_told_as_they_were_sent(api: httpx.Client, auditor: Engine, new_user: NewUser) -> None:
    user = new_user()
    numbers = {"a": 1, "b": 1.0, "c": 1e300, "d": 2**60, "e": True, "f": None, "g": -0.0, "h": 0.1}
    register(api, user, device_id="a", metadata=numbers)
    (body,) = bodies(auditor, user)
    assert repr(json.loads(body)["data"]["data"]["metadata"]) == repr(numbers)


def test_a_message_says_when_it_happened_to_the_microsecond(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    register(api, user, device_id="a")
    (event,) = api.get(f"/v1/users/{user}/events").json()["items"]
    (body,) = bodies(auditor, user)
    message = json.loads(body)
    assert message["timestamp"] == event["occurred_at"]
    told = {name: message["data"][name] for name in ("device_id", "actor", "reason", "request_id", "data")}
    assert told == {name: event[name] for name in told}
    assert message["data"]["event_id"] == event["id"]
    assert datetime.datetime.fromisoformat(message["timestamp"]).tzinfo is not None
