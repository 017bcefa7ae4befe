"""The service in processes of its own, as `cupo serve` or uvicorn starts it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT_KEY = "a root key for the tests"
START_SECONDS = 60
STOP_SECONDS = 20
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

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=30)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running_service(
    database_url: str, folder: Path, *, workers: int = 1, application: str | None = None, **settings: object
) -> Iterator[Service]:
    """`cupo serve` with `settings` (names without CUPO_), or uvicorn with another `application`.

    Its output goes to a file in `folder`. Ends by SIGTERM; one that does not end by it fails the test.
    """
    port = free_port()
    log = folder / f"service-{port}.log"
    if application is None:
        command = [sys.executable, "-m", "app", "serve", "--port", str(port), "--workers", str(workers)]
    else:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            application,
            "--port",
            str(port),
            "--workers",
            str(workers),
        ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    environment |= {"CUPO_DATABASE_URL": database_url, "CUPO_ROOT_KEY": ROOT_KEY}
    environment |= {f"CUPO_{name.upper()}": str(value) for name, value in settings.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    service = Service(f"http://127.0.0.1:{port}", process, log)
    try:
        _wait_until_alive(service)
        yield service
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def _wait_until_alive(service: Service) -> None:
    """Polled, since a service says nothing to its parent once it listens."""
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at:
        if service.process.poll() is not None:
            break
        try:
            httpx.get(f"{service.url}/livez", timeout=5)
        except httpx.TransportError:
            time.sleep(POLL_SECONDS)
        else:
            return
    raise AssertionError(f"the service did not start:\n{service.log.read_text()}")
