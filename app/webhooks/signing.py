"""Signatures and secrets as Standard Webhooks 1.0 has them; receivers verify them with its libraries."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

KEY_BYTES = 32  # the specification admits 24 to 64


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def spelled(key: bytes) -> str:
    """The secret as receivers keep it."""
    return "whsec_" + base64.b64encode(key).decode()


def signed_headers(keys: Sequence[bytes], webhook_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of an attempt made at `timestamp`, in Unix seconds.

    It is signed with each of `keys`: during a rotation there are two, and a receiver takes the body if it
    has either.
    """
    content = f"{webhook_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(key, content) for key in keys),
    }


def _signature(key: bytes, content: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
