"""A user's quota as callers see it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

EXAMPLE: dict[str, Any] = {"limit": 3, "used": 1, "source": "default", "remaining": 2}


class Quota(BaseModel):
    """How many devices a user may have and has."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={"examples": [EXAMPLE]},
        json_schema_serialization_defaults_required=True,
    )

    limit: int = Field(ge=0, le=10_000, description="Devices that the user may have.")
    used: int = Field(
        ge=0, description="Devices that the user has; above `limit` only after the limit was lowered."
    )
    source: Literal["default"] = Field(default="default", description="Where the limit comes from.")

    @computed_field(description="Devices that can still be registered, never below 0.")  # type: ignore[prop-decorator] # mypy knows no decorated property
    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    def with_one_more(self) -> "Quota":
        return self.model_copy(update={"used": self.used + 1})
