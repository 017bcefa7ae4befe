"""Runs of a second each: of contestants as they are, and of some that must not pass for one."""

import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import contestants, database
from bench.contestants import Scene
from bench.database import NAMES, count_devices, databases, empty, make_key, run_cupo, shared_server
from bench.errors import BadUse, NotRun
from bench.fill import fill
from bench.measure import measure
from bench.plan import QUICK
from bench.result import Sample
from bench.scenarios import CUPO_1, FILLED, NAIVE, SCENARIOS
from tests.programs import WRK, program
from tests.servers import Server

PLAN = dataclasses.replace(QUICK, filled_users=600, filled_devices=2000)
SPREAD = dataclasses.replace(SCENARIOS[0], connections=4)  # in a second, on however busy a machine
FAKE = Path(__file__).parent / "fake.py"


@pytest.fixture(scope="module")
def scene(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    program(WRK)
    if not server.is_private:
        pytest.skip("the peers' database and their account are made on a private server only")
    with databases(server, {"own", "filled", "peer"}):
        yield Scene(
            server,
            tmp_path_factory.mktemp("bench"),
            {name: make_key(server, name) for name in ("own", "filled")},
        )


def test_a_server_whose_data_would_be_in_memory_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "filesystem_of", lambda _: "tmpfs")
    with pytest.raises(BadUse, match="name a folder on a disk by TMPDIR"), shared_server(PLAN):
        pass


def test_the_service_is_measured_with_a_key_of_its_own(scene: Scene) -> None:
    found = measure(scene, PLAN, SPREAD, CUPO_1, 0)
    assert found.failure is None
    assert (found.scenario, found.contestant, found.round) == ("spread-32", "cupo-1", 0)
    assert min(found.rate, found.service_us, found.database_us, found.load_us) > 0
    assert 0 <= found.others_share <= 1


def test_a_peer_is_measured_by_its_rows_and_empty_tables_are_made_of_them(scene: Scene) -> None:
    found = measure(scene, PLAN, SPREAD, NAIVE, 0)
    assert found.failure is None
    assert count_devices(scene.server, "peer") > found.rate * PLAN.seconds
    empty(scene.server, "peer")
    assert count_devices(scene.server, "peer") == 0


def test_emptying_keeps_the_key(scene: Scene) -> None:
    empty(scene.server, "own")
    with scene.server.admin_connection(NAMES["own"]) as admin:
        assert admin.exec_driver_sql("SELECT COUNT(*) FROM api_keys").scalar_one() == 1


def of_a_fake(scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: str) -> Sample:
    def command(*given: object) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, str(FAKE), str(given[-1])], os.environ | {"FAULT": fault}

    monkeypatch.setattr(contestants, "_command", command)
    return measure(scene, PLAN, SPREAD, NAIVE, 0)


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("lies", "answers were 2xx, and 0 devices were registered"),
        ("lenient", "a new user at limit 2 was answered [201, 201, 201]"),
        ("fails", "failures, such as 'ERROR:    Exception in ASGI application'"),
    ],
)
def test_a_contestant_that_does_not_do_the_work_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: str, failure: str
) -> None:
    told = of_a_fake(scene, monkeypatch, fault).failure
    assert told is not None
    assert failure in told


def test_answers_of_5xx_are_told_by_the_services_own_metrics(scene: Scene) -> None:
    hurried = (("CUPO_DATABASE_POOL_SIZE", "1"), ("CUPO_DATABASE_POOL_WAIT_SECONDS", "0.001"))
    told = measure(scene, PLAN, SPREAD, dataclasses.replace(CUPO_1, settings=hurried), 0).failure
    assert told is not None
    assert "answers by status: {'503'" in told


def test_a_contestant_that_does_not_start_is_left_out_with_its_last_words(scene: Scene) -> None:
    unknown = dataclasses.replace(CUPO_1, settings=(("CUPO_GROUPSIZE", "1"),))
    with pytest.raises(NotRun, match="CUPO_GROUPSIZE: is not a setting of Cupo"):
        measure(scene, PLAN, SPREAD, unknown, 0)


def test_the_filled_database_is_one_that_registrations_could_have_made_and_go_on_in(scene: Scene) -> None:
    fill(scene.server, PLAN)
    with scene.server.admin_connection(NAMES["filled"]) as admin:
        rows = admin.exec_driver_sql("SELECT user_id, COUNT(*) FROM devices GROUP BY 1 ORDER BY 1")
        counts = [(int(user_id), int(count)) for user_id, count in rows]
        locks = admin.exec_driver_sql("SELECT COUNT(*) FROM device_registration_locks").scalar_one()
    assert [user_id for user_id, _ in counts] == list(range(1, 601))
    assert Counter(count for _, count in counts) == {1: 100, 2: 100, 3: 200, 5: 100, 6: 100}
    assert locks == 600
    filled, with_room = dataclasses.replace(FILLED, workers=1), dataclasses.replace(SPREAD, has_room=True)
    rounds = [measure(scene, PLAN, with_room, filled, number) for number in range(2)]
    assert [sample.failure for sample in rounds] == [None, None]  # though nothing is emptied in between
    # Nobody is above the limit, and the trail explains each device: else this fails.
    run_cupo(scene.server, "filled", "audit", CUPO_DEFAULT_DEVICE_LIMIT=str(PLAN.filled_limit))
