"""A user's trail, replayed from empty: what must be there if it tells all that happened, in its order."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, select

from app.tables import devices, events

REMOVING = {"device.revoked", "device.evicted", "device.replaced", "device.expired"}


@dataclass
class Replay:
    """A user's devices and limit, as of the events so far."""

    user_id: int
    limit: int
    devices: set[str] = field(default_factory=set)
    types: Counter[str] = field(default_factory=Counter)

    def add(self, device_id: str) -> None:
        assert device_id not in self.devices, f"{device_id} was there already"
        self.devices.add(device_id)
        assert len(self.devices) <= self.limit, f"{device_id} is one more than {self.limit}"

    def follow(self, event: Any) -> None:
        self.types[event.type] += 1
        match event.type:
            case "device.registered":
                self.add(event.device_id)
            case "device.transferred" if event.data["to_user_id"] == str(self.user_id):
                self.add(event.device_id)
            case "device.transferred":
                self.devices.remove(event.device_id)
            case removing if removing in REMOVING:
                self.devices.remove(event.device_id)
            case "quota.changed":
                self.limit = event.data["limit"]
            case "user.erased":
                self.devices.clear()


def events_of(auditor: Engine, user_id: int) -> list[Any]:
    """In the order in which they were written, which the user's lock makes the order of the changes."""
    with auditor.connect() as connection:
        return list(
            connection.execute(select(events).where(events.c.user_id == user_id).order_by(events.c.id))
        )


def types_of(auditor: Engine, user_id: int) -> list[str]:
    return [event.type for event in events_of(auditor, user_id)]


def devices_of(auditor: Engine, user_id: int) -> list[str]:
    query = select(devices.c.device_id).where(devices.c.user_id == user_id).order_by(devices.c.device_id)
    with auditor.connect() as connection:
        return list(connection.execute(query).scalars())


def replayed(auditor: Engine, user_id: int, limit: int, moved_in: Collection[str] = ()) -> Replay:
    """Replay the trail and hold it against the rows: no step passes the limit, and the end is what is there.

    `limit` is the service's default; `moved_in` are devices that were there before the trail began.
    """
    trail = events_of(auditor, user_id)
    assert trail == sorted(trail, key=lambda event: (event.occurred_at, event.id)), "read in another order"
    replay = Replay(user_id, limit, set(moved_in))
    for event in trail:
        replay.follow(event)
    assert sorted(replay.devices) == devices_of(auditor, user_id)
    return replay
