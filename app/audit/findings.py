"""What an audit can find."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from app.audit.trail import FAILURES, Cause
from app.texts import Instant, UserIdAsText


class _Found(BaseModel):
    model_config = ConfigDict(frozen=True)

    user_id: UserIdAsText


class AboveLimit(_Found):
    """A user with more devices than the limit, not counting those whose lease has run out.

    `since` and `event_id` are by the trail, None where it does not tell.
    """

    finding: Literal["above_limit"] = "above_limit"
    cause: Cause
    used: int
    limit: int
    since: Instant | None
    event_id: UserIdAsText | None

    @property
    def is_failure(self) -> bool:
        return self.cause in FAILURES


class TrailBroken(_Found):
    """A device that is there and should not be by the trail, or the other way round."""

    finding: Literal["device_without_event", "event_without_device"]
    device_id: str

    @property
    def is_failure(self) -> bool:
        return True


class OrphanLock(_Found):
    """A lock row and nothing else of the user, as a refused call leaves it. Harmless; see decision 0020."""

    finding: Literal["orphan_lock"] = "orphan_lock"

    @property
    def is_failure(self) -> bool:
        return False


Finding = AboveLimit | TrailBroken | OrphanLock
