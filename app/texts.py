"""The kinds of text, numbers and instants that the contract knows, each stated once."""

import datetime
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

MOST_DEVICE_ID_CHARACTERS = 128

# The names «.» and «..» are left out: in a path every client would resolve them away.
DEVICE_ID_PATTERN = r"^(\.{0,2}[A-Za-z0-9_:~-][A-Za-z0-9._:~-]*|\.{3}[A-Za-z0-9._:~-]*)$"
# C0, DEL and C1. Joiners and direction marks are no control characters; emoji and many scripts need them.
NO_CONTROL_CHARACTERS = r"^[^\x00-\x1f\x7f-\x9f]*$"
# Python's JSON parser lets halves of a pair through, which no UTF-8 can hold.
SURROGATE = re.compile(r"[\ud800-\udfff]")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _device_id(value: str) -> str:
    if len(value) > MOST_DEVICE_ID_CHARACTERS or not re.fullmatch(DEVICE_ID_PATTERN, value):
        raise ValueError(
            f"must be 1 to {MOST_DEVICE_ID_CHARACTERS} of the characters A-Z a-z 0-9 . _ : ~ -"
            " and neither . nor .. alone"
        )
    return value


DeviceId = Annotated[
    str,
    AfterValidator(_device_id),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MOST_DEVICE_ID_CHARACTERS,
            "pattern": DEVICE_ID_PATTERN,
            "examples": ["3f6c1a50-phone"],
        }
    ),
]


def clean(value: str) -> str:
    if _CONTROL_CHARACTER.search(value):
        raise ValueError("must not have control characters")
    if SURROGATE.search(value):
        raise ValueError("must be Unicode text: it has half a surrogate pair")
    return value


def _text(most: int) -> tuple[Any, ...]:
    """What makes a str a text of at most `most` code points, trimmed."""

    def trimmed(value: str) -> str:
        text = clean(value).strip()
        if len(text) > most:
            raise ValueError(f"must have at most {most} characters, not {len(text)}")
        return text

    schema = {"type": "string", "maxLength": most, "pattern": NO_CONTROL_CHARACTERS}
    return AfterValidator(trimmed), WithJsonSchema(schema)


Name = Annotated[str, *_text(100)]
ShortText = Annotated[str, *_text(64)]
Description = Annotated[str, *_text(200)]
Reason = Annotated[str, *_text(500)]


def rfc3339(instant: datetime.datetime) -> str:
    return instant.isoformat(timespec="microseconds") + "Z"


Instant = Annotated[
    datetime.datetime,
    PlainSerializer(rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
UserIdAsText = Annotated[
    int, PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string"}, mode="serialization")
]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole_number(least: int, most: int) -> tuple[Any, ...]:
    """What makes an int of JSON, which has one kind of number: 60.0 and 6e1 are 60, and some write it so."""
    return Field(strict=True, ge=least, le=most), BeforeValidator(_whole)


MOST_USER_ID = 2**64 - 1


def _pattern_up_to(most: int) -> str:
    """Matches 1 … `most` in decimal digits and nothing else: a length alone lets larger ones through."""
    digits = str(most)
    fewer_digits = f"[1-9][0-9]{{0,{len(digits) - 2}}}"
    smaller = [
        f"{digits[:place]}[{least}-{int(digit) - 1}][0-9]{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if int(digit) > (least := 0 if place else 1)
    ]
    return f"^({'|'.join([fewer_digits, *smaller, digits])})$"


USER_ID_PATTERN = _pattern_up_to(MOST_USER_ID)


def user_id(digits: str) -> int:
    if not re.fullmatch(USER_ID_PATTERN, digits):
        raise ValueError(f"must be 1 … {MOST_USER_ID}, in decimal digits without leading zeros")
    return int(digits)


def _from_text(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - pydantic reports a ValueError
    return user_id(value)


# JavaScript loses integers above 2^53, hence text.
UserIdInBody = Annotated[
    int,
    BeforeValidator(_from_text),
    WithJsonSchema({"type": "string", "pattern": USER_ID_PATTERN}),
]
SerialAsText = Annotated[
    int, PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string"}, mode="serialization")
]

# tables.py makes its CHECK constraints of these.
Platform = Literal["ios", "android", "windows", "macos", "linux", "web", "tv", "other"]
EventType = Literal[
    "device.registered",
    "device.updated",
    "device.revoked",
    "device.evicted",
    "device.replaced",
    "device.expired",
    "device.blocked",
    "device.allowed",
    "device.transferred",
    "quota.changed",
    "user.erased",
]
# Told to one endpoint, on request; no event of the trail.
TEST_EVENT_TYPE = "webhook.test"

# What becomes of an event on its way to an endpoint: docs/delivery_states.md.
DeliveryState = Literal["waiting", "pending", "claimed", "retrying", "delivered", "discarded"]
