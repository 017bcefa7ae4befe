"""The two encodings that tokens and keys are made of, each read strictly: one text has one meaning."""

import base64
import json
from typing import Any, NoReturn


def base64url(text: str) -> bytes:
    """The bytes that `text` spells as RFC 7515, section 2 has it, and in no other way; else ValueError.

    Padding, white space, the other alphabet and stray bits at the end are all refused: a token that can be
    written in two ways can be on a list of revoked ones in the other.
    """
    found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64url_text(found) != text:
        raise ValueError("is not base64url as RFC 7515 writes it")
    return found


def base64url_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data` (RFC 7493, I-JSON); else ValueError.

    Of a name that is there twice, two readers may take two values.
    """
    try:
        found = json.loads(data.decode(), object_pairs_hook=_members, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - callers know one error
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("has a member twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"has {name}, which is no JSON value")
