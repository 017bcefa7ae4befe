"""Devices as callers send and see them."""

import datetime
import json
import re
import sys
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from app.quotas.schemas import EXAMPLE as EXAMPLE_QUOTA
from app.quotas.schemas import Quota

METADATA_BYTES = 4096
METADATA_KEYS = 32
METADATA_KEY_CHARACTERS = 40
MOST_DEVICE_ID_CHARACTERS = 128

# The names «.» and «..» are left out: in a path every client would resolve them away.
DEVICE_ID_PATTERN = r"^(\.{0,2}[A-Za-z0-9_:~-][A-Za-z0-9._:~-]*|\.{3}[A-Za-z0-9._:~-]*)$"
# C0, DEL and C1. Joiners and direction marks are no control characters; emoji and many scripts need them.
NO_CONTROL_CHARACTERS = r"^[^\x00-\x1f\x7f-\x9f]*$"
# Python's JSON parser lets halves of a pair through, which no UTF-8 can hold.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
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
Platform = Literal["ios", "android", "windows", "macos", "linux", "web", "tv", "other"]


def _clean(value: str) -> str:
    if _CONTROL_CHARACTER.search(value):
        raise ValueError("must not have control characters")
    if _SURROGATE.search(value):
        raise ValueError("must be Unicode text: it has half a surrogate pair")
    return value


def _text(most: int) -> tuple[Any, ...]:
    """What makes a str a text of at most `most` code points, trimmed."""

    def trimmed(value: str) -> str:
        text = _clean(value).strip()
        if len(text) > most:
            raise ValueError(f"must have at most {most} characters, not {len(text)}")
        return text

    schema = {"type": "string", "maxLength": most, "pattern": NO_CONTROL_CHARACTERS}
    return AfterValidator(trimmed), WithJsonSchema(schema)


Name = Annotated[str, *_text(100)]
ShortText = Annotated[str, *_text(64)]


def _scalar(value: Any) -> Any:
    """One validator in place of a union of types, which would report each type that the value is not."""
    match value:
        case str() if _SURROGATE.search(value):
            raise ValueError("must be Unicode text: it has half a surrogate pair")
        case None | bool() | str():
            return value
        case int() | float() if abs(value) <= sys.float_info.max:
            return value
        case int() | float():
            raise ValueError("must be a number that a 64-bit float can hold")
    raise ValueError("must be a string, a number, true, false or null")


def _key(value: str) -> str:
    if not 1 <= len(value) <= METADATA_KEY_CHARACTERS:
        raise ValueError(f"must have a key of 1 to {METADATA_KEY_CHARACTERS} characters")
    return _clean(value)


def _small(metadata: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > METADATA_BYTES:
        raise ValueError(f"must have at most {METADATA_BYTES} bytes as JSON, not {len(text)}")
    return metadata


_SCALAR_SCHEMA = {"anyOf": [{"type": name} for name in ("string", "number", "boolean", "null")]}
Metadata = Annotated[
    dict[
        Annotated[str, AfterValidator(_key)],
        Annotated[Any, PlainValidator(_scalar), WithJsonSchema(_SCALAR_SCHEMA)],
    ],
    Field(max_length=METADATA_KEYS),
    AfterValidator(_small),
]


def _rfc3339(instant: datetime.datetime) -> str:
    return instant.isoformat(timespec="microseconds") + "Z"


Instant = Annotated[
    datetime.datetime,
    PlainSerializer(_rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
UserIdAsText = Annotated[
    int, PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string"}, mode="serialization")
]


class DeviceFields(BaseModel):
    """What describes a device, all optional."""

    name: Name | None = Field(default=None, description="For people; trimmed, at most 100 code points.")
    platform: Platform | None = None
    model: ShortText | None = Field(default=None, description="At most 64 code points.")
    os_version: ShortText | None = Field(default=None, description="At most 64 code points.")
    app_version: ShortText | None = Field(default=None, description="At most 64 code points.")
    metadata: Metadata | None = Field(
        default=None, description="A flat object of at most 32 keys and 4 KiB as JSON, kept exactly."
    )


class NewDevice(DeviceFields):
    """A device to register. Fields that are not known are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"device_id": "3f6c1a50-phone", "name": "Ana's phone", "platform": "android"}]
        },
    )

    device_id: DeviceId | None = Field(
        default=None, description="Chosen by the client, compared byte for byte. Left out: a UUIDv7 is made."
    )

    def given_fields(self) -> dict[str, Any]:
        """The descriptive fields that the caller sent, null ones included."""
        return self.model_dump(include=self.model_fields_set - {"device_id"})


# No nulls: FastAPI leaves them out of the document, and the example would lack what it shows.
EXAMPLE: dict[str, Any] = {
    "device_id": "3f6c1a50-phone",
    "user_id": "42",
    "name": "Ana's phone",
    "platform": "android",
    "model": "Pixel 12",
    "os_version": "17",
    "app_version": "4.2.0",
    "metadata": {"channel": "beta"},
    "registered_at": "2026-11-30T09:30:00.123456Z",
    "last_seen_at": "2026-11-30T09:30:00.123456Z",
    "revision": 1,
}

EXAMPLE_CURSOR = "MjAyNi0xMS0zMFQwOTozMDowMC4xMjM0NTZ8M2Y2YzFhNTAtcGhvbmU"


class Device(DeviceFields):
    """A registered device."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={"examples": [EXAMPLE]},
        json_schema_serialization_defaults_required=True,
    )

    device_id: DeviceId
    user_id: UserIdAsText
    registered_at: Instant = Field(description="By the database's clock, UTC.")
    last_seen_at: Instant = Field(description="Moves when the device registers again.")
    revision: int = Field(ge=1, description="Counts the changes of descriptive fields; the ETag in quotes.")

    @property
    def etag(self) -> str:
        return f'"{self.revision}"'


class Registration(BaseModel):
    """The registered device and what is left of the user's quota."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"device": EXAMPLE, "quota": EXAMPLE_QUOTA}]})

    device: Device
    quota: Quota


class DeviceList(BaseModel):
    """A page of devices, oldest first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"items": [EXAMPLE], "next_cursor": EXAMPLE_CURSOR, "quota": EXAMPLE_QUOTA}]
        }
    )

    items: list[Device]
    next_cursor: str | None = Field(description="Send as `cursor` for the next page; null at the end.")
    quota: Quota
