"""API keys as callers send and see them."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from app.auth.scopes import SCOPES, Scope
from app.keys.token import ID_LENGTH, ID_PATTERN
from app.texts import Instant, Name, whole_number

EXAMPLE: dict[str, Any] = {
    "id": "k3v9x0q7m2ad",
    "name": "backend",
    "scopes": ["devices:read", "devices:write"],
    "created_at": "2026-11-30T09:30:00.123456Z",
    "created_by": "root_key",
    "expires_at": "2027-02-28T09:30:00.123456Z",
    "last_used_at": None,
    "revoked_at": None,
    "revoked_by": None,
}
EXAMPLE_TOKEN = "cupo_k3v9x0q7m2ad_" + "x" * 43
EXAMPLE_CURSOR = "YXBpLWtleXN8MjAyNi0xMS0zMFQwOTozMDowMC4xMjM0NTZ8azN2OXgwcTdtMmFk"
# A name of white space alone would be trimmed to none.
NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
MOST_SECONDS = 315_360_000  # ten years


def _named(name: str) -> str:
    if not name:
        raise ValueError("must not be empty")
    return name


def _different(scopes: list[Scope]) -> list[Scope]:
    if len(set(scopes)) != len(scopes):
        raise ValueError("must name each scope once")
    return scopes


KeyName = Annotated[
    Name,
    AfterValidator(_named),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 100, "pattern": NAME_PATTERN}),
]
Scopes = Annotated[
    list[Scope],
    Field(min_length=1, max_length=len(SCOPES), json_schema_extra={"uniqueItems": True}),
    AfterValidator(_different),
]


def _key_id(value: str) -> str:
    if not re.fullmatch(ID_PATTERN, value):
        raise ValueError(f"must be the id of an API key: {ID_LENGTH} of the characters a-z 0-9")
    return value


KeyId = Annotated[
    str,
    AfterValidator(_key_id),
    WithJsonSchema({"type": "string", "pattern": ID_PATTERN, "examples": [EXAMPLE["id"]]}),
]


class NewApiKey(BaseModel):
    """A key to be made. Fields that are not known are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {"name": "backend", "scopes": EXAMPLE["scopes"], "expires_in_seconds": 7_776_000},
            ]
        },
    )

    name: KeyName = Field(description="For people: what the key is used for. Trimmed, 1 to 100 code points.")
    scopes: Scopes = Field(description="What the key may do. Only what the caller may do itself.")
    expires_in_seconds: Annotated[int, *whole_number(60, MOST_SECONDS)] | None = Field(
        default=None, description="The key ends this long after it was made. Left out, or null: never."
    )


class ApiKey(BaseModel):
    """A key without its secret, which is shown once and kept nowhere."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [EXAMPLE]})

    id: str = Field(
        description="The part of the token that is no secret. The trail has it as `api_key:<id>`."
    )
    name: str
    scopes: list[Scope]
    created_at: Instant
    created_by: str = Field(description="The key that asked for it, or `cli`.")
    expires_at: Instant | None
    last_used_at: Instant | None = Field(description="Written at most once a minute.")
    revoked_at: Instant | None
    revoked_by: str | None


class CreatedApiKey(BaseModel):
    """The new key, and its token."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"api_key": EXAMPLE, "token": EXAMPLE_TOKEN}]},
    )

    api_key: ApiKey
    token: str = Field(description="To be sent as `Authorization: Bearer <token>`. It is never shown again.")


class ApiKeyList(BaseModel):
    """A page of keys, newest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [EXAMPLE], "next_cursor": EXAMPLE_CURSOR}]}
    )

    items: list[ApiKey]
    next_cursor: str | None = Field(description="Send as `cursor` for the next page; null at the end.")
