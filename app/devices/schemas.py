"""Devices as callers send and see them."""

import datetime
import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    WithJsonSchema,
)

from app.quotas.schemas import Quota

METADATA_BYTES = 4096

# The names «.» and «..» are left out: in a path every client would resolve them away.
DEVICE_ID_PATTERN = r"^(\.{0,2}[A-Za-z0-9_:~-][A-Za-z0-9._:~-]*|\.{3}[A-Za-z0-9._:~-]*)$"
# C0, DEL and C1. Joiners and direction marks are no control characters; emoji and many scripts need them.
NO_CONTROL_CHARACTERS = r"^[^\x00-\x1f\x7f-\x9f]*$"

DeviceId = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=DEVICE_ID_PATTERN)]
Platform = Literal["ios", "android", "windows", "macos", "linux", "web", "tv", "other"]


_Text = Annotated[str, StringConstraints(pattern=NO_CONTROL_CHARACTERS), AfterValidator(str.strip)]
Name = Annotated[_Text, Field(max_length=100)]
ShortText = Annotated[_Text, Field(max_length=64)]


def _small(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode()) > METADATA_BYTES:
        raise ValueError(f"has more than {METADATA_BYTES} bytes as JSON")
    return metadata


Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=NO_CONTROL_CHARACTERS)],
        StrictStr | StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)] | None,
    ],
    Field(max_length=32),
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


class Device(DeviceFields):
    """A registered device."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "device_id": "3f6c1a50-phone",
                    "user_id": "42",
                    "name": "Ana's phone",
                    "platform": "android",
                    "model": None,
                    "os_version": None,
                    "app_version": None,
                    "metadata": None,
                    "registered_at": "2026-11-30T09:30:00.123456Z",
                    "last_seen_at": "2026-11-30T09:30:00.123456Z",
                    "revision": 1,
                }
            ]
        },
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

    device: Device
    quota: Quota


class DeviceList(BaseModel):
    """A page of devices, oldest first."""

    items: list[Device]
    next_cursor: str | None = Field(description="Send as `cursor` for the next page; null at the end.")
    quota: Quota
