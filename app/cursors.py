"""Opaque cursors: where the next page of a list begins."""

import base64
import binascii
import datetime
import re


def encode(instant: datetime.datetime, key: str) -> str:
    return base64.urlsafe_b64encode(f"{instant.isoformat()}|{key}".encode()).decode().rstrip("=")


def decode(cursor: str) -> tuple[datetime.datetime, str]:
    """What `encode` was given; ValueError where the text did not come from it."""
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        instant, separator, key = decoded.decode("ascii").partition("|")
        after = datetime.datetime.fromisoformat(instant).replace(tzinfo=None)
    except (ValueError, binascii.Error):
        separator = ""
    if not separator:
        raise ValueError("is not a cursor that this service has made")
    return after, key


def decode_number(cursor: str) -> tuple[datetime.datetime, int]:
    """Likewise, where the key is a number."""
    instant, key = decode(cursor)
    if not re.fullmatch(r"[0-9]{1,18}", key):  # 18 digits fit every database's integers
        raise ValueError("is not a cursor of this list")
    return instant, int(key)
