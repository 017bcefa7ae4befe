"""`cupo worker` over HTTP: its metrics, and whether it still gets on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine, text

from app.migrations import migrate
from app.ops import worker_port
from app.ops.worker_port import Progress, open_port
from app.settings import Settings, load_settings
from loadtest.ports import LOOPBACK, free_port
from tests.processes import started
from tests.scraping import Metrics, scrape
from tests.services import POLL_SECONDS, ROOT_KEY, START_SECONDS


@contextmanager
def working(settings: Settings, folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """`cupo worker`, which answers by now, and its address."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    environment |= {
        "CUPO_DATABASE_URL": settings.database_url.get_secret_value(),
        "CUPO_WORKER_METRICS_PORT": str(port),
        "CUPO_SWEEP_INTERVAL_SECONDS": "0.1",
    }
    with (
        (folder / "worker.log").open("wb") as log,
        started([sys.executable, "-m", "app", "worker"], env=environment, stderr=log) as process,
    ):
        url = f"http://{LOOPBACK}:{port}"
        wait_for(url)
        yield url, process


def wait_for(url: str) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        try:
            httpx.get(f"{url}/livez")
        except httpx.TransportError:
            assert time.monotonic() < give_up_at
            time.sleep(POLL_SECONDS)
        else:
            return


def wait_until_swept(url: str, devices: int) -> Metrics:
    give_up_at = time.monotonic() + START_SECONDS
    while (found := scrape(url)).value("cupo_swept_total", what="devices") < devices:
        assert time.monotonic() < give_up_at
        time.sleep(POLL_SECONDS)
    return found


def test_what_the_worker_does_is_counted(folder: Path) -> None:
    settings = load_settings(database_url=f"sqlite:///{folder}/cupo.db", root_key=ROOT_KEY)
    migrate(settings)
    began_at = time.time()
    with working(settings, folder) as (url, process):
        engine = create_engine(settings.url)
        with engine.begin() as connection:
            columns = "user_id, device_id, registered_at, last_seen_at, lease_seconds, expires_at, revision"
            row = "1, 'a', '2020-01-01', '2020-01-01', 60, '2020-01-02', 1"
            connection.execute(text(f"INSERT INTO devices ({columns}) VALUES ({row})"))  # noqa: S608 - our own words
        engine.dispose()
        found = wait_until_swept(url, devices=1)
        assert found.value("cupo_sweeps_total", outcome="done") >= 1
        assert found.value("cupo_sweep_duration_seconds_count") >= 1
        assert began_at <= found.value("cupo_sweep_last_success_timestamp_seconds") <= time.time()
        assert httpx.get(f"{url}/livez").text == "alive\n"
        assert httpx.get(f"{url}/elsewhere").status_code == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_worker_that_does_not_get_on_is_not_alive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    settings = load_settings(database_url=f"sqlite:///{folder}/cupo.db", worker_metrics_port=port)
    progress = Progress()
    with open_port(settings, progress):
        assert httpx.get(f"http://{LOOPBACK}:{port}/livez").status_code == 200
        monkeypatch.setattr(worker_port, "MOST_SECONDS_WITHOUT_PROGRESS", -settings.sweep_interval_seconds)
        assert httpx.get(f"http://{LOOPBACK}:{port}/livez").status_code == 503


def test_a_port_that_is_taken_is_told_in_one_line(folder: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [sys.executable, "-m", "app", "worker"],
            env=os.environ
            | {"CUPO_DATABASE_URL": f"sqlite:///{folder}/cupo.db", "CUPO_WORKER_METRICS_PORT": str(port)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "cupo: CUPO_WORKER_METRICS_PORT: cannot listen: Address already in use\n"
