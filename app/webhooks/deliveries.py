"""What is to be told, as the worker has it in its hands."""

import datetime
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a delivery goes. `secrets`: those in force, the newer one first, as they lie in the database."""

    id: int
    url: str
    secrets: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The event that a delivery tells of."""

    id: int
    user_id: int
    device_id: str | None
    actor: str
    reason: str | None
    request_id: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """One that is claimed. `token` names the claim, `attempts` counts the one that is to be made now.

    `at` is when it happened: the event, or the request for a test, which has no event. `age_seconds` is from
    then to the claim, by the database's clock.
    """

    id: int
    token: str
    endpoint: Endpoint
    type: str
    at: datetime.datetime
    attempts: int
    event: Occurrence | None
    age_seconds: float = 0.0
