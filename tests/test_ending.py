"""How the service ends: in order, at once when asked twice, and with all that belongs to it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text
from uvicorn.config import STARTUP_FAILURE

from loadtest.ports import free_port
from tests.scraping import scrape
from tests.services import POLL_SECONDS, ROOT_KEY, Service, running_service

NewUser = Callable[[], int]
PATIENCE_SECONDS = 30


def wait_until(happened: Callable[[], bool]) -> None:
    """Polled: processes that come and go tell nobody."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(POLL_SECONDS)


def workers_of(service: Service) -> list[int]:
    """All that were started, by the log."""
    return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", service.log.read_text())]


def exists(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def refuses_connections(service: Service) -> bool:
    try:
        httpx.get(f"{service.url}/livez", timeout=1)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # taken before the port was closed, and dropped with it
        return False
    return False


@contextmanager
def locked(auditor: Engine, user: int) -> Iterator[Callable[[], None]]:
    """Hold the user's lock until the end of the block, or until what is given is called."""
    query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
    with auditor.connect() as holder:
        holder.exec_driver_sql("BEGIN")
        assert holder.execute(text(query), {"user": user}).all()
        yield lambda: holder.exec_driver_sql("ROLLBACK").close()
        holder.exec_driver_sql("ROLLBACK")


@contextmanager
def call_in_flight(service: Service, auditor: Engine, user: int) -> Iterator[Callable[[], httpx.Response]]:
    """A registration that waits for a lock; what is given lets it have the lock, and returns its answer."""
    path = f"/v1/users/{user}/devices"
    with service.client() as api, ThreadPoolExecutor(1) as thread:
        assert api.post(path, json={"device_id": "first"}).status_code == 201
        with locked(auditor, user) as let_go:
            answer = thread.submit(api.post, path, json={"device_id": "second"})
            wait_until(lambda: scrape(service.url).value("cupo_database_threads_in_use") == 1)

            def finish() -> httpx.Response:
                let_go()
                return answer.result()

            yield finish


def test_a_call_in_flight_is_finished_and_its_connection_closed(
    database_url: str, folder: Path, auditor: Engine, new_user: NewUser
) -> None:
    with (
        running_service(database_url, folder) as service,
        call_in_flight(service, auditor, new_user()) as finish,
    ):
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses_connections(service))
        answer = finish()
        assert (answer.status_code, answer.headers["Connection"]) == (201, "close")
        assert service.process.wait(PATIENCE_SECONDS) == 0


def test_before_the_port_closes_readyz_says_so_and_calls_are_served(
    database_url: str, folder: Path, new_user: NewUser
) -> None:
    with (
        running_service(database_url, folder, shutdown_delay_seconds=3) as service,
        service.client() as api,
    ):
        assert api.get("/readyz").status_code == 200
        began = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: api.get("/readyz").status_code == 503)
        said = api.get("/readyz")
        assert said.json() == {"status": "shutting down", "checks": []}
        assert said.headers["Connection"] == "close"
        assert scrape(service.url).value("cupo_ready") == 0
        while time.monotonic() < began + 2:
            served = api.post(f"/v1/users/{new_user()}/devices", json={})
            assert (served.status_code, served.headers["Connection"]) == (201, "close")
        assert api.get("/livez").status_code == 200
        assert service.process.wait(PATIENCE_SECONDS) == 0
        assert time.monotonic() - began > 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_signal_ends_it_at_once(
    database_url: str,
    folder: Path,
    auditor: Engine,
    new_user: NewUser,
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    with (
        running_service(
            database_url, folder, workers=workers, shutdown_delay_seconds=60, lock_budget_seconds=60
        ) as service,
        locked_out(service, auditor, new_user()),
    ):
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 503)
        service.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        service.process.wait(PATIENCE_SECONDS)
        assert time.monotonic() - began < 5
        assert not any(map(exists, workers_of(service)))
        assert list(folder.glob("cupo-metrics-*")) == []


@contextmanager
def locked_out(service: Service, auditor: Engine, user: int) -> Iterator[None]:
    """A registration that waits for a lock, and whose connection may break."""
    with service.client() as api:
        assert api.post(f"/v1/users/{user}/devices", json={}).status_code == 201
    with locked(auditor, user), ThreadPoolExecutor(1) as thread:
        broken = thread.submit(
            httpx.post, f"{service.url}/v1/users/{user}/devices", json={}, headers=service.headers, timeout=60
        )
        wait_until(lambda: scrape(service.url).value("cupo_database_threads_in_use") == 1)
        yield
        assert isinstance(broken.exception(), httpx.TransportError)


def test_ctrl_c_reaches_all_processes_and_is_one_signal(
    database_url: str,
    folder: Path,
    auditor: Engine,
    new_user: NewUser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    with (
        running_service(database_url, folder, workers=2) as service,
        call_in_flight(service, auditor, new_user()) as finish,
    ):
        wait_until(lambda: len(workers_of(service)) == 2)
        (metrics_folder,) = folder.glob("cupo-metrics-*")
        os.killpg(service.process.pid, signal.SIGINT)
        wait_until(lambda: refuses_connections(service))
        assert finish().status_code == 201
        assert service.process.wait(PATIENCE_SECONDS) == 0
        assert not any(map(exists, workers_of(service)))
        assert not metrics_folder.exists()


def test_a_worker_that_dies_is_replaced_and_none_outlives_what_watches_over_it(
    database_url: str, folder: Path, new_user: NewUser
) -> None:
    with running_service(database_url, folder, workers=2) as service, service.client() as api:
        wait_until(lambda: scrape(service.url).value("cupo_database_pool_size") == 20)
        for _ in range(20):
            assert api.post(f"/v1/users/{new_user()}/devices", json={}).status_code == 201
        os.kill(workers_of(service)[0], signal.SIGKILL)
        wait_until(lambda: len(workers_of(service)) == 3)
        wait_until(lambda: scrape(service.url).value("cupo_database_pool_size") == 20)
        assert scrape(service.url).value("cupo_registrations_total", outcome="created") == 20
        assert "ended with status -9 and is replaced" in service.logged()
        service.process.kill()
        wait_until(lambda: not any(map(exists, workers_of(service))))


FAILING_IN_WORKERS = """
import sys
if "--multiprocessing-fork" in sys.argv:
    sys.modules["app.main"] = None  # as a module that is broken
"""


@pytest.mark.parametrize(
    "command",
    [("app", "serve", "--workers", "2"), ("uvicorn", "app.main:app", "--workers", "2")],
    ids=["cupo", "uvicorn"],
)
def test_a_worker_that_cannot_start_is_not_started_again_for_ever(
    database_url: str, folder: Path, command: tuple[str, ...]
) -> None:
    (folder / "sitecustomize.py").write_text(FAILING_IN_WORKERS)
    environment = os.environ | {"PYTHONPATH": f"{folder}:{Path.cwd()}", "CUPO_DATABASE_URL": database_url}
    if command[0] == "app":
        environment["CUPO_ROOT_KEY"] = ROOT_KEY
    ended = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", *command, "--port", str(free_port())],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if command[0] == "app":
        assert ended.returncode == STARTUP_FAILURE
        assert "could not start, so that no other would" in ended.stderr
    assert "is replaced" not in ended.stderr
