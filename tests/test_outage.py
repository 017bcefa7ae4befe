"""A database that is stopped and started again under load, and others that do not answer."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from app.migrations import migrate
from app.settings import load_settings
from tests.proxy import proxied
from tests.servers import Server, fresh_database, private_server
from tests.services import POLL_SECONDS, ROOT_KEY, Service, running_service

pytestmark = pytest.mark.locking

CALLERS = 6
WORKERS = 2
BACK_WITHIN_SECONDS = 5
MOST_READY_SECONDS = 1.5  # its second, and what a busy machine takes for the rest


@pytest.fixture
def own_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    with private_server(pytestconfig.getoption("--server")) as own:
        yield own


@contextmanager
def serving(own: Server, folder: Path, workers: int = 1) -> Iterator[Service]:
    with fresh_database(own, "cupo_test_outage") as url:
        migrate(load_settings(database_url=url, root_key=ROOT_KEY))
        with running_service(url, folder, workers=workers) as service:
            yield service


def wait_until(happened: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(POLL_SECONDS)


def readiness(service: Service) -> tuple[int, float]:
    """Its status, and the seconds that it took."""
    began = time.monotonic()
    status = httpx.get(f"{service.url}/readyz", timeout=30).status_code
    return status, time.monotonic() - began


@dataclass
class Load:
    """Callers without a pause, and one that asks `/livez` all the time."""

    service: Service
    succeeded_at: list[float] = field(default_factory=list)
    failed_at: list[float] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)
    liveness: set[int] = field(default_factory=set)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        done = threading.Event()
        numbers = itertools.count(1)

        def call() -> None:
            with self.service.client() as api:
                while not done.is_set():
                    answer = api.post(f"/v1/users/{next(numbers)}/devices", json={"device_id": "a"})
                    self.statuses.add(answer.status_code)
                    succeeded = answer.status_code == 201
                    (self.succeeded_at if succeeded else self.failed_at).append(time.monotonic())

        def look() -> None:
            while not done.is_set():
                self.liveness.add(httpx.get(f"{self.service.url}/livez", timeout=10).status_code)
                done.wait(POLL_SECONDS)

        with ThreadPoolExecutor(CALLERS + 1) as threads:
            tasks = [threads.submit(look), *(threads.submit(call) for _ in range(CALLERS))]
            try:
                yield
            finally:
                done.set()
        for task in tasks:
            task.result()

    def go_on_for(self, calls: int) -> None:
        wanted = len(self.succeeded_at) + calls
        wait_until(lambda: len(self.succeeded_at) >= wanted)


def test_a_database_stopped_and_started_under_load_costs_no_worker_and_no_more_than_its_absence(
    own_server: Server, folder: Path
) -> None:
    with serving(own_server, folder, WORKERS) as service:
        load = Load(service)
        with load.going_on():
            load.go_on_for(50)
            own_server.stop()
            wait_until(lambda: readiness(service)[0] == 503)
            wait_until(lambda: len(load.failed_at) >= 10)
            own_server.start()
            back_at = time.monotonic()
            wait_until(lambda: load.succeeded_at[-1] > back_at)
            assert time.monotonic() < back_at + BACK_WITHIN_SECONDS
            wait_until(lambda: readiness(service)[0] == 200)
            time.sleep(max(0, back_at + BACK_WITHIN_SECONDS - time.monotonic()))
            load.go_on_for(50)
        assert load.statuses == {201, 503}
        assert load.liveness == {200}
        assert max(load.failed_at) < back_at + BACK_WITHIN_SECONDS
        log = service.logged()
        assert log.count("Started server process") == WORKERS
        assert "is replaced" not in log


def test_readyz_answers_within_a_second_whatever_the_database_does(own_server: Server, folder: Path) -> None:
    with serving(own_server, folder) as service:
        assert readiness(service)[0] == 200
        own_server.pause()
        paused = [readiness(service) for _ in range(3)]
        own_server.resume()
        wait_until(lambda: readiness(service)[0] == 200)
        own_server.stop()
        stopped = [readiness(service) for _ in range(3)]
        own_server.start()
        wait_until(lambda: readiness(service)[0] == 200)
    for status, seconds in (*paused, *stopped):
        assert status == 503
        assert seconds < MOST_READY_SECONDS


def test_readyz_answers_within_a_second_where_packets_vanish(database_url: str, folder: Path) -> None:
    with proxied(database_url) as (proxy, url), running_service(url, folder) as service:
        assert readiness(service)[0] == 200
        proxy.freeze()
        vanished = [readiness(service) for _ in range(5)]
        assert httpx.get(f"{service.url}/livez").status_code == 200
        proxy.thaw()
        wait_until(lambda: readiness(service)[0] == 200)
    for status, seconds in vanished:
        assert status == 503
        assert seconds < MOST_READY_SECONDS
