"""Webhook endpoints and deliveries as callers send and see them."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from app.texts import DeliveryState, Description, EventType, Instant, SerialAsText, UserIdAsText
from app.webhooks.addresses import MOST_URL_CHARACTERS

_SERIAL_PATTERN = r"^[1-9][0-9]{0,17}$"


def _serial(what: str, example: str) -> tuple[Any, ...]:
    """The id of `what` in a path or a query."""

    def checked(text: str) -> str:
        if not re.fullmatch(_SERIAL_PATTERN, text):
            raise ValueError(f"must be the id of {what}: 1 to 18 digits 0-9, the first not 0")
        return text

    schema = {"type": "string", "pattern": _SERIAL_PATTERN, "examples": [example]}
    return AfterValidator(checked), WithJsonSchema(schema)


EndpointId = Annotated[str, *_serial("an endpoint", "7")]
DeliveryId = Annotated[str, *_serial("a delivery", "4711")]
EventId = Annotated[str, *_serial("an event", "1042")]


def _unique(types: list[EventType]) -> list[EventType]:
    if len(set(types)) != len(types):
        raise ValueError("must not name a type twice")
    return types


# Its form is judged by `addresses.parse_url`, which needs the settings.
Url = Annotated[
    str,
    Field(max_length=MOST_URL_CHARACTERS),
    WithJsonSchema({"type": "string", "format": "uri", "maxLength": MOST_URL_CHARACTERS}),
]
EventTypes = Annotated[
    list[EventType],
    Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_unique),
]

EXAMPLE_URL = "https://hooks.example.com/cupo"
_NEW: dict[str, Any] = {
    "url": EXAMPLE_URL,
    "event_types": ["device.revoked", "device.evicted"],
    "description": "Ends sessions",
}
# No nulls, see app.devices.schemas. This one is being rotated, and was disabled by its receiver.
EXAMPLE: dict[str, Any] = {
    "id": "7",
    **_NEW,
    "enabled": False,
    "disabled_because": "gone",
    "previous_secret_until": "2026-12-01T09:30:00.123456Z",
    "created_at": "2026-11-30T09:30:00.123456Z",
    "revision": 3,
}
EXAMPLE_DELIVERY: dict[str, Any] = {
    "id": "4711",
    "webhook_id": "evt_1042_7",
    "endpoint_id": "7",
    "event_id": "1042",
    "user_id": "42",
    "type": "device.revoked",
    "state": "retrying",
    "attempts": 2,
    "created_at": "2026-11-30T09:31:00.223456Z",
    "next_attempt_at": "2026-11-30T09:36:10.523456Z",
    "last_attempt_at": "2026-11-30T09:31:05.323456Z",
    "last_status": 503,
    "last_duration_ms": 120,
    "last_error": "answered 503",
    "last_answer": "Down for maintenance",
}
_NEXT_ENDPOINTS = "d2ViaG9vay1lbmRwb2ludHN8MjAyNi0xMS0zMFQwOTozMDowMC4xMjM0NTZ8Nw"
_NEXT_DELIVERIES = "d2ViaG9vay1kZWxpdmVyaWVzfDIwMjYtMTEtMzBUMDk6MzE6MDAuMjIzNDU2fDQ3MTE"


class NewWebhookEndpoint(BaseModel):
    """Where to tell what happens. Fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [_NEW]})

    url: Url = Field(description="https, at a public address; no user name, no fragment.")
    event_types: EventTypes | None = Field(
        default=None,
        description="What it is told of. Left out or null: of everything, types to come included.",
    )
    description: Description | None = Field(
        default=None, description="For people; trimmed, at most 200 code points."
    )


class WebhookEndpointChange(BaseModel):
    """A JSON merge patch (RFC 7396): what is left out stays, null clears where null can be."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"enabled": True}]}
    )

    url: Url = Field(default="", description="Messages that wait go to the new one, too.")
    event_types: EventTypes | None = Field(default=None, description="null: of everything.")
    description: Description | None = None
    enabled: bool = Field(
        default=True,
        strict=True,
        description="Disabled: what happens is not told to it. What waits already, waits on.",
    )

    def given_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model_fields_set}


class WebhookEndpoint(BaseModel):
    """An endpoint. Its secret is shown when it is made or rotated, and never again."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={"examples": [EXAMPLE]},
        json_schema_serialization_defaults_required=True,
    )

    id: SerialAsText
    url: str
    event_types: list[EventType] | None = Field(description="null: all.")
    description: str | None
    enabled: bool
    disabled_because: Literal["asked", "gone"] | None = Field(
        description="`asked`: by a call; `gone`: its receiver answered 410."
    )
    previous_secret_until: Instant | None = Field(
        description="Until then messages are also signed with the secret before the last rotation."
    )
    created_at: Instant
    revision: int = Field(ge=1, description="Counts the changes; the ETag in quotes.")

    @property
    def etag(self) -> str:
        return f'"{self.revision}"'


class WebhookEndpointWithSecret(WebhookEndpoint):
    """An endpoint and its secret, which is shown this once."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [EXAMPLE | {"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="}]
        }
    )

    secret: str = Field(
        description="`whsec_` and the base64 of 32 random bytes, as Standard Webhooks has it."
    )


class WebhookEndpointList(BaseModel):
    """A page of endpoints, oldest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [EXAMPLE], "next_cursor": _NEXT_ENDPOINTS}]}
    )

    items: list[WebhookEndpoint]
    next_cursor: str | None = Field(description="Send as `cursor` for the next page; null at the end.")


class WebhookDelivery(BaseModel):
    """One event on its way to one endpoint."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={"examples": [EXAMPLE_DELIVERY]},
        json_schema_serialization_defaults_required=True,
    )

    id: SerialAsText
    webhook_id: str = Field(description="The `webhook-id` that its receiver sees, at each attempt the same.")
    endpoint_id: SerialAsText
    event_id: SerialAsText | None = Field(description="In the user's trail; null for a test.")
    user_id: UserIdAsText | None
    type: str = Field(description="The event's type, or `webhook.test`.")
    state: DeliveryState = Field(
        description="`waiting`: for an earlier event of the same user. `pending`: for its first attempt. "
        "`claimed`: under way. `retrying`: for the next attempt. `delivered`: answered by a 2xx. "
        "`discarded`: given up."
    )
    attempts: int = Field(ge=0, description="Those that were begun.")
    created_at: Instant
    next_attempt_at: Instant | None
    last_attempt_at: Instant | None
    last_status: int | None = Field(description="What the receiver answered; null if it did not.")
    last_duration_ms: int | None
    last_error: str | None = Field(description="For people: why the last attempt failed.")
    last_answer: str | None = Field(description="The start of the last answer's body.")


class WebhookDeliveryList(BaseModel):
    """A page of deliveries, newest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [EXAMPLE_DELIVERY], "next_cursor": _NEXT_DELIVERIES}]}
    )

    items: list[WebhookDelivery]
    next_cursor: str | None = Field(description="Send as `cursor` for the next page; null at the end.")
