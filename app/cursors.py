"""Opaque cursors: where the next page of a list begins. Each is good for the list that gave it alone."""

import base64
import binascii
import datetime
import re
from typing import Literal

ListName = Literal["devices", "events", "api-keys", "webhook-endpoints", "webhook-deliveries"]


def encode(of: ListName, instant: datetime.datetime, key: str) -> str:
    return base64.urlsafe_b64encode(f"{of}|{instant.isoformat()}|{key}".encode()).decode().rstrip("=")


def decode(of: ListName, cursor: str) -> tuple[datetime.datetime, str]:
    """What `encode` was given; ValueError where the text did not come from it, or from another list."""
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        name, instant, key = decoded.decode("ascii").split("|")
        after = datetime.datetime.fromisoformat(instant).replace(tzinfo=None)
    except (ValueError, binascii.Error):
        raise ValueError("is not a cursor that this service has made") from None
    if name != of:
        raise ValueError("is not a cursor of this list")
    return after, key


def decode_number(of: ListName, cursor: str) -> tuple[datetime.datetime, int]:
    """Likewise, where the key is a number."""
    instant, key = decode(of, cursor)
    if not re.fullmatch(r"[0-9]{1,18}", key):  # 18 digits fit every database's integers
        raise ValueError("is not a cursor that this service has made")
    return instant, int(key)
