"""Workers as processes: nothing is lost or sent twice at once, whatever becomes of them."""

import json
import logging
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.settings import Settings
from tests.services import running_service
from tests.webhooks.recording import HANGING, Arrival, Recorder, running_worker
from tests.webhooks.rows import put_delivery, put_endpoint, put_events, put_waiting, read, run

pytestmark = [pytest.mark.locking, pytest.mark.usefixtures("own"), pytest.mark.timeout(300)]

CAP = 2
STATES = "SELECT state, COUNT(*) FROM webhook_deliveries GROUP BY state"
END_LEASES = "UPDATE webhook_deliveries SET claimed_until = UTC_TIMESTAMP(6) WHERE state = 'claimed'"
IDS = "SELECT CONCAT('evt_', event_id, '_', endpoint_id) FROM webhook_deliveries"


def wait_until_all_are_delivered(engine: Engine, recorder: Recorder, how_many: int) -> None:
    recorder.wait_until(lambda: dict(read(engine, STATES)) == {"delivered": how_many}, 240)


@pytest.fixture
def four_workers(own: Settings, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running_worker(own, folder, f"worker-{number}")) for number in range(4)]


@pytest.mark.usefixtures("four_workers")
def test_four_workers_make_5000_deliveries_each_once(engine: Engine, recorder: Recorder) -> None:
    paths = {put_endpoint(engine, recorder.url(f"/{number}")): f"/{number}" for number in range(25)}
    put_events(engine, 200, users=100)
    wait_until_all_are_delivered(engine, recorder, 5000)
    assert {paths[endpoint_of(arrival)] == arrival.path for arrival in recorder.arrivals} == {True}
    assert recorder.twice_at_once == []
    assert max(recorder.most_at_once.values()) <= CAP
    assert recorder.ids() == dict.fromkeys(read(engine, IDS), 1)
    assert all(in_order(arrivals) for arrivals in recorder.by_path().values())


def endpoint_of(arrival: Arrival) -> int:
    return int(arrival.webhook_id.rpartition("_")[2])


def in_order(arrivals: list[Arrival]) -> bool:
    """Whether the events of each user came in their order."""
    of_user: dict[int, list[int]] = defaultdict(list)
    for arrival in arrivals:
        data = json.loads(arrival.body)["data"]
        of_user[int(data["user_id"])].append(int(data["event_id"]))
    return all(ids == sorted(ids) for ids in of_user.values())


def test_what_workers_that_are_killed_had_is_sent_again_under_the_same_id(
    own: Settings, engine: Engine, recorder: Recorder, folder: Path
) -> None:
    recorder.pause_seconds = 0.05  # so that a kill meets deliveries under way
    chance = random.Random(7)  # noqa: S311 - picks victims, guards no secret
    for number in range(25):
        put_endpoint(engine, recorder.url(f"/{number}"))
    put_events(engine, 40)
    with ExitStack() as stack:
        workers = [stack.enter_context(running_worker(own, folder, f"worker-{n}")) for n in range(4)]
        for kill in range(4):
            recorder.wait_for(200 * (kill + 1))
            victim = workers.pop(chance.randrange(4))
            victim.send_signal(signal.SIGKILL)
            victim.wait(10)
            run(engine, f"{END_LEASES} AND last_attempt_at < UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
            workers.append(stack.enter_context(running_worker(own, folder, f"again-{kill}")))
        while dict(read(engine, STATES)) != {"delivered": 1000}:
            time.sleep(0.5)  # the leases of those that were killed are cut short, not waited for
            run(engine, f"{END_LEASES} AND last_attempt_at < UTC_TIMESTAMP(6) - INTERVAL 2 SECOND")
    ids = recorder.ids()
    repeats = ids.total() - len(ids)
    assert set(ids) == set(read(engine, IDS))
    assert repeats <= 4 * 16, "more than the killed can have had under way"
    logging.getLogger(__name__).info("4 workers were killed, %d deliveries came again", repeats)


def test_a_worker_that_was_paused_past_its_lease_cannot_settle_what_another_has(
    own: Settings, engine: Engine, recorder: Recorder, folder: Path
) -> None:
    recorder.pause_seconds = 1.0
    put_delivery(engine, put_endpoint(engine, recorder.url("/")), 1)
    token = "SELECT claimed_by FROM webhook_deliveries WHERE state = 'claimed'"
    with running_worker(own, folder, "paused") as paused:
        recorder.wait_until(lambda: bool(recorder.open_requests()))
        paused.send_signal(signal.SIGSTOP)
        first = read(engine, token)
        recorder.wait_until(lambda: len(recorder.arrivals) == 1)
        run(engine, END_LEASES)
        recorder.pause_seconds = 4.0
        with running_worker(own, folder, "owner"):
            recorder.wait_until(lambda: bool(recorder.open_requests()))
            second = read(engine, token)
            paused.send_signal(signal.SIGCONT)
            log = folder / "paused.log"
            recorder.wait_until(lambda: b"1 were rescued from us" in log.read_bytes())
            assert read(engine, token) == second != first
            wait_until_all_are_delivered(engine, recorder, 1)
    assert list(recorder.ids().values()) == [2]


def test_a_giant_and_one_that_hangs_hold_up_no_small_one(
    own: Settings, engine: Engine, recorder: Recorder, folder: Path
) -> None:
    """9 endpoints hang: twice the cap of each is more than the concurrency of a worker."""
    recorder.pause_seconds = 0.02
    giant = put_endpoint(engine, recorder.url("/giant"))
    put_waiting(engine, giant, 100_000)
    for number in range(9):
        hanging = put_endpoint(engine, recorder.url(f"{HANGING}/{number}"))
        for user in range(1, 5):
            put_delivery(engine, hanging, user)
    small = [put_endpoint(engine, recorder.url(f"/small/{number}")) for number in range(20)]
    with running_worker(own, folder):
        recorder.wait_until(lambda: len(recorder.open_requests()) >= 9 * CAP)
        due_at = {}
        for number, endpoint in enumerate(small):
            due_at[f"/small/{number}"] = time.monotonic()
            put_delivery(engine, endpoint, 1)
            recorder.wait_for_path(f"/small/{number}")
        arrived = {path: those[0].at for path, those in recorder.by_path().items()}
    delays = sorted(arrived[path] - at for path, at in due_at.items())
    assert delays[-1] < 1, delays
    assert max(recorder.most_at_once.values()) <= CAP
    assert min(recorder.most_at_once[f"{HANGING}/{number}"] for number in range(9)) == CAP


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_ended_finishes_what_is_under_way_and_keeps_nothing_claimed(
    own: Settings, engine: Engine, recorder: Recorder, folder: Path, number: signal.Signals
) -> None:
    recorder.pause_seconds = 1.0
    for path in range(8):
        put_endpoint(engine, recorder.url(f"/{path}"))
    put_events(engine, 10)
    with running_worker(own, folder) as worker:
        recorder.wait_until(lambda: len(recorder.open_requests()) == 16)
        worker.send_signal(number)
        assert worker.wait(20) == 0
    log = (folder / "worker.log").read_text()
    assert "Traceback" not in log
    done = len(recorder.arrivals)
    assert done >= 16
    assert dict(read(engine, STATES)) == {"delivered": done, "pending": 80 - done}


def test_a_service_with_a_worker_in_each_of_its_processes_delivers_each_event_once(
    own: Settings, engine: Engine, recorder: Recorder, folder: Path
) -> None:
    put_endpoint(engine, recorder.url("/"))
    settings: dict[str, Any] = {
        "embedded_worker": True,
        "webhooks_allow_http": True,
        "webhooks_allow_private": True,
    }
    url = own.database_url.get_secret_value()
    with (
        running_service(url, folder, workers=2, default_device_limit=100, **settings) as service,
        service.client() as api,
    ):
        for device in range(30):
            answer = api.post("/v1/users/1/devices", json={"device_id": f"device-{device}"})
            assert answer.status_code == 201
        wait_until_all_are_delivered(engine, recorder, 30)
    assert recorder.ids() == dict.fromkeys(read(engine, IDS), 1)
    told = [json.loads(arrival.body)["data"]["device_id"] for arrival in recorder.arrivals]
    assert told == [f"device-{device}" for device in range(30)]
