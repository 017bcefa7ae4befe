"""The service in processes of its own, as `cupo serve` or uvicorn starts it."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from loadtest.ports import LOOPBACK, free_port
from tests.processes import started

ROOT_KEY = "a root key for the tests"
START_SECONDS = 60
# For a service whose answers must not depend on how busy the machine is: calls that get no connection or lock
# within three seconds would by default be answered by 503.
PATIENT: dict[str, Any] = {"database_pool_wait_seconds": 30, "lock_budget_seconds": 30}
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Service:
    """A running service."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {ROOT_KEY}"}

    def logged(self) -> str:
        """The log up to now. Its lines are written a little after the calls: polled for one more call's."""
        marker = secrets.token_hex(8)
        httpx.get(f"{self.url}/none", headers={"X-Request-ID": marker}, timeout=30)
        give_up_at = time.monotonic() + START_SECONDS
        while marker not in (log := self.log.read_text()):
            assert time.monotonic() < give_up_at, log
            time.sleep(POLL_SECONDS)
        return log

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=30)


@contextmanager
def running_service(
    database_url: str,
    folder: Path,
    *,
    workers: int = 1,
    application: str | None = None,
    command: Sequence[str] = ("app", "serve"),
    port: int | None = None,
    **settings: Any,
) -> Iterator[Service]:
    """`cupo serve` with `settings` (names without CUPO_), or uvicorn with another `application`.

    `command` is the module in place of `cupo`, and what it is told.

    Its output goes to a file in `folder`. Ends by SIGTERM; one that does not end by it fails the test.
    """
    port = port or free_port()
    log = folder / f"service-{port}.log"
    program = command if application is None else ("uvicorn", application)
    words = [sys.executable, "-m", *program, "--port", str(port), "--workers", str(workers)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    environment |= {"CUPO_DATABASE_URL": database_url, "CUPO_ROOT_KEY": ROOT_KEY}
    environment |= {f"CUPO_{name.upper()}": str(value) for name, value in settings.items()}
    with (
        log.open("wb") as output,
        started(words, env=environment, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        service = Service(f"http://{LOOPBACK}:{port}", process, log)
        wait_until_alive(service)
        yield service


def wait_until_alive(service: Service) -> None:
    """Polled, since a service says nothing to its parent once it listens."""
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and service.process.poll() is None:
        # Not only asked: on a port that another has taken, the other would answer.
        if b"Uvicorn running on" in service.log.read_bytes() and _answers(service):
            return
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"the service did not start:\n{service.log.read_text()}")


def _answers(service: Service) -> bool:
    try:
        httpx.get(f"{service.url}/livez", timeout=5)
    except httpx.TransportError:
        return False
    return True
