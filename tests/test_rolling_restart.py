"""Two replicas behind the load balancer of docs/haproxy.cfg, restarted one after the other under load."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import httpx
import pytest

from loadtest.ports import LOOPBACK, free_port
from tests.processes import started
from tests.programs import HAPROXY, program
from tests.scraping import scrape
from tests.services import POLL_SECONDS, ROOT_KEY, Service, running_service

NewUser = Callable[[], int]
CONFIGURATION = Path(__file__).parent.parent / "docs" / "haproxy.cfg"
CALLERS = 24
PATIENCE_SECONDS = 30


@contextmanager
def balanced(folder: Path, ports: list[int]) -> Iterator[str]:
    """The address of HAProxy, with our configuration, before replicas on these ports."""
    port = free_port()
    text = CONFIGURATION.read_text().replace("bind :8000", f"bind {LOOPBACK}:{port}")
    for name, replica in zip("ab", ports, strict=True):
        text = text.replace(f"10.0.0.{'ab'.index(name) + 1}:8000", f"{LOOPBACK}:{replica}")
    file = folder / "haproxy.cfg"
    file.write_text(text)
    log = folder / "haproxy.log"
    with (
        log.open("wb") as output,
        started([program(HAPROXY), "-db", "-f", str(file)], stdout=output, stderr=output),
    ):
        yield f"http://{LOOPBACK}:{port}"


class Load:
    """Callers that register new devices without a pause, and note each answer that is not 201."""

    def __init__(self, url: str, new_user: NewUser) -> None:
        self.answers: Counter[str] = Counter()
        self._url = url
        self._new_user = new_user
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        headers = {"Authorization": f"Bearer {ROOT_KEY}"}
        with httpx.Client(base_url=self._url, headers=headers, timeout=60) as client:
            while not self._done.is_set():
                try:
                    answer = client.post(f"/v1/users/{self._new_user()}/devices", json={"device_id": "a"})
                except httpx.TransportError as error:
                    self.answers[repr(error)] += 1
                else:
                    self.answers[str(answer.status_code)] += 1

    def go_on_for(self, calls: int) -> None:
        wanted = self.answers["201"] + calls
        wait_until(lambda: self.answers["201"] >= wanted)


def wait_until(happened: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(POLL_SECONDS)


@pytest.mark.slow
def test_a_rolling_restart_under_load_fails_no_call(
    database_url: str, new_user: NewUser, folder: Path
) -> None:
    ports = [free_port(), free_port()]

    def replica(port: int) -> AbstractContextManager[Service]:
        return running_service(database_url, folder, port=port, shutdown_delay_seconds=2)

    with ExitStack() as replicas:
        running = [ExitStack(), ExitStack()]
        for port, one in zip(ports, running, strict=True):
            replicas.enter_context(one)
            one.enter_context(replica(port))
        url = replicas.enter_context(balanced(folder, ports))
        wait_until(lambda: is_served(url))
        with Load(url, new_user) as load:
            for port, one in zip(ports, running, strict=True):
                load.go_on_for(100)
                one.close()
                one.enter_context(replica(port))
                wait_until(partial(has_calls, port))  # HAProxy has taken it back
            load.go_on_for(100)
    assert load.answers.keys() == {"201"}


def is_served(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def has_calls(port: int) -> bool:
    return scrape(f"http://{LOOPBACK}:{port}").value("cupo_registrations_total", outcome="created") > 0
