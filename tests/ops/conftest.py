"""What the tests of running it share: the service's log, line by line."""

import json
import time
from typing import Any

import pytest

from tests.services import POLL_SECONDS, Service

PATIENCE_SECONDS = 10


class Log:
    """The lines that a service has written since this was made."""

    def __init__(self, service: Service) -> None:
        self._file = service.log
        self._start = len(self._file.read_bytes())

    def text(self) -> str:
        return self._file.read_bytes()[self._start :].decode()

    def lines(self, **fields: Any) -> list[dict[str, Any]]:
        """Those that have these fields."""
        written = self.text()
        whole = written[: written.rfind("\n") + 1]
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if fields.items() <= line.items()]

    def wait_for(self, **fields: Any) -> dict[str, Any]:
        """The first that has these fields. Polled: it is written after its call was answered."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            if found := self.lines(**fields):
                return found[0]
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"no line with {fields} in:\n{self.text()}")


@pytest.fixture
def log(service: Service) -> Log:
    return Log(service)
