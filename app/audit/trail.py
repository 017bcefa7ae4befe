"""A user's trail, replayed: which devices it leaves, and how the user came to have more than the limit."""

import datetime
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.origin import IMPORT
from app.settings import Settings

_LEAVING = frozenset({"device.revoked", "device.evicted", "device.replaced", "device.expired"})


class Cause(StrEnum):
    """Why a user is above the limit. The first two are failures, of the service or of who wrote past it."""

    PASSED = "passed"  # a device came that should have been refused
    UNTOLD = "untold"  # the trail knows of no moment at which it happened
    LOWERED = "lowered"  # the limit went down, which throws nobody out
    IMPORTED = "imported"  # by `cupo import --over-limit keep`


FAILURES = frozenset({Cause.PASSED, Cause.UNTOLD})


@dataclass(frozen=True, slots=True)
class Rise:
    """The event by which the user came above the limit, and stayed there."""

    cause: Cause
    at: datetime.datetime
    event_id: int


@dataclass(slots=True)
class Replay:
    """The state of one user after the events so far; `devices` are those that should be there."""

    user_id: int
    settings: Settings
    devices: set[str] = field(default_factory=set)
    rise: Rise | None = None
    _own_limit: int | None = None

    def follow(self, event: Any) -> None:
        """The next event of the trail, whose order is that of the changes: each held the user's lock."""
        arrived = self._move(event)
        if not self._is_above():
            self.rise = None
        elif arrived or self.rise is None:
            rise = self._rise_by(event)
            # Once above, only a device that came then and should not have makes it worse.
            if self.rise is None or (rise.cause is Cause.PASSED and self.rise.cause is not Cause.PASSED):
                self.rise = rise

    def _move(self, event: Any) -> bool:
        """Whether a device came with this event."""
        match event.type:
            case "device.registered":
                self.devices.add(event.device_id)
                return True
            case "device.transferred" if event.data["to_user_id"] == str(self.user_id):
                self.devices.add(event.device_id)
                return True
            case "quota.changed":
                self._own_limit = event.data["limit"] if event.data["source"] == "override" else None
            case "user.erased":
                self.devices.clear()
                self._own_limit = None
            case leaving if leaving in _LEAVING or leaving == "device.transferred":
                self.devices.discard(event.device_id)
        return False

    def _is_above(self) -> bool:
        limit = self.settings.default_device_limit if self._own_limit is None else self._own_limit
        return len(self.devices) > limit

    def _rise_by(self, event: Any) -> Rise:
        if event.type == "quota.changed":
            return Rise(Cause.LOWERED, event.occurred_at, event.id)
        if event.actor == IMPORT:
            return Rise(Cause.IMPORTED, event.occurred_at, event.id)
        since = self.settings.default_device_limit_since
        if self._own_limit is None and since is not None and event.occurred_at < since.replace(tzinfo=None):
            # Let in by the default of its time, which was higher.
            return Rise(Cause.LOWERED, since.replace(tzinfo=None), event.id)
        return Rise(Cause.PASSED, event.occurred_at, event.id)
