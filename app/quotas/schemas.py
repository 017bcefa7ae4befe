"""A user's quota as callers send and see it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from app.texts import Reason, whole_number

EXAMPLE: dict[str, Any] = {"limit": 3, "used": 1, "source": "default", "remaining": 2}
MOST_DEVICES = 10_000


class Quota(BaseModel):
    """How many devices a user may have and has."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={"examples": [EXAMPLE]},
        json_schema_serialization_defaults_required=True,
    )

    limit: int = Field(ge=0, le=MOST_DEVICES, description="Devices that the user may have.")
    used: int = Field(
        ge=0, description="Devices that the user has; above `limit` only after the limit was lowered."
    )
    source: Literal["default", "override"] = Field(
        description="Where the limit comes from: the service's default, or this user's own."
    )
    revision: int = Field(exclude=True)

    @computed_field(description="Devices that can still be registered, never below 0.")  # type: ignore[prop-decorator] # mypy knows no decorated property
    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def etag(self) -> str:
        return f'"{self.revision}"'

    def with_used(self, used: int) -> "Quota":
        return self.model_copy(update={"used": used})


class OwnLimit(BaseModel):
    """A user's own limit, in place of the default."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"limit": 5, "reason": "family plan"}]}
    )

    limit: Annotated[int, *whole_number(0, MOST_DEVICES)]
    reason: Reason | None = None
