"""Devices as callers send and see them."""

import json
import sys
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from app.errors import InvalidRequest
from app.quotas.schemas import EXAMPLE as EXAMPLE_QUOTA
from app.quotas.schemas import Quota
from app.texts import (
    NO_CONTROL_CHARACTERS,
    SURROGATE,
    DeviceId,
    Instant,
    Name,
    Platform,
    ShortText,
    UserIdAsText,
    UserIdInBody,
    clean,
    whole_number,
)

METADATA_BYTES = 4096
METADATA_KEYS = 32
METADATA_KEY_CHARACTERS = 40


def _scalar(value: Any) -> Any:
    """One validator in place of a union of types, which would report each type that the value is not."""
    match value:
        case str() if SURROGATE.search(value):
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
    return clean(value)


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(metadata) > METADATA_KEYS:
        raise ValueError(f"must have at most {METADATA_KEYS} keys, not {len(metadata)}")
    text = json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > METADATA_BYTES:
        raise ValueError(f"must have at most {METADATA_BYTES} bytes as JSON, not {len(text)}")
    return metadata


_SCALAR_SCHEMA = {"anyOf": [{"type": name} for name in ("string", "number", "boolean", "null")]}
_KEY_SCHEMA = {"minLength": 1, "maxLength": METADATA_KEY_CHARACTERS, "pattern": NO_CONTROL_CHARACTERS}
_FlatObject = Annotated[
    dict[
        Annotated[str, AfterValidator(_key)],
        Annotated[Any, PlainValidator(_scalar), WithJsonSchema(_SCALAR_SCHEMA)],
    ],
    # pydantic would make a pattern of the keys into one that says nothing of the other keys.
    Field(json_schema_extra={"propertyNames": _KEY_SCHEMA}),
]
Metadata = Annotated[_FlatObject, Field(max_length=METADATA_KEYS), AfterValidator(_bounded)]
# Between any two there are at most so many differences: all keys of one go, all keys of the other come.
MetadataChange = Annotated[_FlatObject, Field(max_length=2 * METADATA_KEYS)]

LeaseSeconds = Annotated[int, *whole_number(60, 31_536_000)]


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

    def descriptive_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in DeviceFields.model_fields}


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
    lease_seconds: LeaseSeconds | None = Field(
        default=None,
        description="The device frees its slot this long after it was last heard of. Left out: the service's "
        "default, or what the device has. null: never.",
    )
    replace_device_id: DeviceId | None = Field(
        default=None,
        description="Revoke this device in the same transaction, so that nobody takes its slot. It must be "
        "there (404), unless `device_id` is registered already, which takes no slot.",
    )
    on_limit: Literal["reject", "evict_oldest", "evict_least_recently_seen"] = Field(
        default="reject",
        description="What to do at the limit: refuse, as when left out, or revoke by age or by last use.",
    )

    def given_fields(self) -> dict[str, Any]:
        """The descriptive fields that the caller sent, null ones included."""
        return {
            name: value for name, value in self.descriptive_fields().items() if name in self.model_fields_set
        }

    def lease_or(self, otherwise: int | None) -> int | None:
        """The lease that the caller asks for, null included, or else `otherwise`. Seconds."""
        return self.lease_seconds if "lease_seconds" in self.model_fields_set else otherwise


class DeviceChange(DeviceFields):
    """A JSON merge patch (RFC 7396): what is left out stays, null clears, `metadata` merges key by key."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"name": "Ana's old phone"}]}
    )

    metadata: MetadataChange | None = Field(
        default=None, description="Keys to set, or with null to remove; null as a whole removes all."
    )

    def merged_into(self, device: "Device") -> dict[str, Any]:
        """The descriptive fields that change, with their new values.

        Raises InvalidRequest (422) where the metadata would pass its bounds.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if self.metadata is not None:
            given["metadata"] = _merged(device.metadata or {}, self.metadata)
        return changed_fields(device, given)


def _merged(metadata: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """As RFC 7396 has it: a null of `change` removes its key, one that was there before is a value."""
    merged = metadata | change
    try:
        return _bounded(
            {key: value for key, value in merged.items() if value is not None or key not in change}
        )
    except ValueError as error:
        detail = f"{error}, once merged"
        raise InvalidRequest([{"detail": detail, "location": "body", "pointer": "#/metadata"}]) from None


def changed_fields(device: "Device", given: dict[str, Any]) -> dict[str, Any]:
    """Those of `given` that differ. As JSON: Python would take 1, 1.0 and true for one value."""
    return {
        name: value
        for name, value in given.items()
        if json.dumps(getattr(device, name), sort_keys=True) != json.dumps(value, sort_keys=True)
    }


class Transfer(BaseModel):
    """Where a device goes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"to_user_id": "43"}]}
    )

    to_user_id: UserIdInBody


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
    "expires_at": "2026-12-30T09:30:00.123456Z",
    "revision": 1,
}

EXAMPLE_CURSOR = "ZGV2aWNlc3wyMDI2LTExLTMwVDA5OjMwOjAwLjEyMzQ1NnwzZjZjMWE1MC1waG9uZQ"


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
    last_seen_at: Instant = Field(description="Moves with a heartbeat and when the device registers again.")
    expires_at: Instant | None = Field(description="When its lease ends and its slot is free; null: never.")
    revision: int = Field(ge=1, description="Counts the changes of descriptive fields; the ETag in quotes.")

    lease_seconds: int | None = Field(exclude=True)

    @property
    def etag(self) -> str:
        return f'"{self.revision}"'


class Registration(BaseModel):
    """The registered device, what is left of the user's quota, and which devices had to go for it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"device": EXAMPLE, "quota": EXAMPLE_QUOTA, "evicted": []}]}
    )

    device: Device
    quota: Quota
    evicted: list[Device] = Field(description="Revoked because of `on_limit`.")


class Transferred(BaseModel):
    """The device at its receiver, and the receiver's quota."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"device": EXAMPLE, "quota": EXAMPLE_QUOTA}]})

    device: Device
    quota: Quota


class RevokedDevices(BaseModel):
    """How many devices were revoked."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"revoked": 3}]})

    revoked: int = Field(ge=0)


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
