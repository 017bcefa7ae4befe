"""What the tests of groups share: a process' registrations behind a proxy."""

from collections.abc import Callable, Iterator

import pytest

from app.devices import groups
from tests.devices.scenes import PATIENCE_SECONDS, Scene, scene_at


@pytest.fixture
def scene(database_url: str, new_user: Callable[[], int]) -> Iterator[Scene]:
    with scene_at(database_url, new_user) as made:
        yield made


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who wait hold still until whoever is in the database is done, however busy the machine is."""
    monkeypatch.setattr(groups, "LONGEST_TURN_SECONDS", PATIENCE_SECONDS)
