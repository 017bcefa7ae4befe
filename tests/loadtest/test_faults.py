"""Runs with faults: what holds and what breaks, on servers and replicas that the command itself starts."""

import json
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.faults.clock import DAY_SECONDS
from loadtest.faults.record import RECORD
from loadtest.faults.replicas import Replica, Setup, started_replicas
from tests.loadtest.conftest import REPOSITORY, Command
from tests.programs import COMPILER, program
from tests.services import ROOT_KEY

# Calls at such a rate that the faults find some under way, on a machine that does other things as well.
FEW = ("--replicas", "2", "--users", "2", "--clients", "4", "--out", "results")
INTERRUPTED = 130
LOCKLESS = f"{sys.executable} -m uvicorn tests.lockless:app"


@pytest.fixture(autouse=True)
def _modules_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the replicas, which start in an empty folder."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("results", RECORD).read_text())
    return found


@pytest.mark.timeout(300)
def test_after_short_faults_on_one_server_every_history_is_linearizable(command: Command) -> None:
    schedule = "kill-database@2s:1s, pause-database@6s:2s, kill-worker@9s, stop-replica@10s:0s"
    told = command("faults", "--schedule", schedule, *FEW)
    assert told.status == 0, told
    run = kept()
    assert ", ".join(outage["struck"]["fault"] for outage in run["outages"]) == schedule
    assert run["findings"]["users"] > 2
    assert run["findings"]["rows"] > 0
    assert "HOLDS Every history is linearizable" in told.out
    assert "Every history is linearizable" in Path("results", "report.html").read_text()


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_after_short_faults_on_a_cluster_all_nodes_hold_the_same_linearizable_rows(
    command: Command, pytestconfig: pytest.Config
) -> None:
    is_mysql = pytestconfig.getoption("--server") in ("mysql", "group-replication")
    cluster = "group-replication" if is_mysql else "galera"
    schedule = "kill-database@1s:0s, partition@3s:3s"
    told = command("faults", "--database", cluster, "--schedule", schedule, *FEW)
    if told.status == 2 and "network namespaces" in told.err:
        pytest.skip(told.err)
    assert told.status == 0, told
    assert "all 3 nodes hold the same rows" in told.out


def test_without_the_lock_the_run_finds_histories_that_no_order_explains(
    command: Command, database_url: str
) -> None:
    told = command(
        *("faults", "--database", database_url, "--schedule", "kill-worker@3s", "--serve", LOCKLESS),
        *("--replicas", "2", "--users", "2", "--clients", "8", "--pause", "20ms", "--out", "results"),
    )
    assert told.status == 1, told
    assert "no order explains the answers" in told.out
    assert kept()["findings"]["violations"]
    assert "<svg" in Path("results", "report.html").read_text()


def test_a_run_that_is_interrupted_ends_all_that_it_has_started(command: Command) -> None:
    with command.start("faults", "--schedule", "pause-worker@0s:300s", *FEW) as process:
        assert process.stderr is not None
        line = ""
        while "pause-worker" not in line:
            line = process.stderr.readline()
            assert line, "it ended by itself"
        started = descendants(process.pid)
        assert len(started) > 4  # the database, two replicas, their workers
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == INTERRUPTED
    # Who only helps a process ends just after it.
    give_up_at = time.monotonic() + 20
    while left := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < give_up_at, left
        time.sleep(0.05)


def test_a_replica_decides_by_the_clock_of_the_database(
    database_url: str, folder: Path, new_user: Callable[[], int]
) -> None:
    program(COMPILER)
    settings = {"CUPO_DATABASE_URL": database_url, "CUPO_ROOT_KEY": ROOT_KEY, "CUPO_LOG_FORMAT": "json"}
    with ExitStack() as ends:
        setup = Setup(folder, workers=1, settings=settings, steps_clocks=True)
        (replica,) = started_replicas(setup, 1, ends)
        devices = f"{replica.url}/v1/users/{new_user()}/devices"
        assert replica.clock is not None
        replica.clock.put_forward(DAY_SECONDS)
        before = datetime.now(UTC)
        with httpx.Client(headers={"Authorization": f"Bearer {ROOT_KEY}"}, timeout=30) as api:
            # The step is there when the replica logs by it.
            while not any(at > before + timedelta(hours=23) for at in logged_at(replica)):
                assert api.get(devices).json()["items"] == []
            registered = api.post(devices, json={"device_id": "a", "lease_seconds": 60}).json()["device"]
            assert [device["device_id"] for device in api.get(devices).json()["items"]] == ["a"]
    at, ends_at = (datetime.fromisoformat(registered[name]) for name in ("registered_at", "expires_at"))
    assert before - timedelta(seconds=1) <= at <= datetime.now(UTC)
    assert ends_at - at == timedelta(seconds=60)


def logged_at(replica: Replica) -> list[datetime]:
    times = re.findall(r'"timestamp": "([^"]+)"', replica.process.log.read_text())
    return [datetime.fromisoformat(time) for time in times]


def descendants(pid: int) -> list[int]:
    children = [
        int(word)
        for of_thread in Path(f"/proc/{pid}/task").glob("*/children")
        for word in of_thread.read_text().split()
    ]
    return [*children, *(one for child in children for one in descendants(child))]
