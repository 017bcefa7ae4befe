"""The load test against the real service on a real server, and against one whose lock was taken out."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest import record
from loadtest.plan import Plan, parse_mix
from tests.loadtest.conftest import Command
from tests.scraping import scrape
from tests.services import PATIENT, Service, running_service


@pytest.fixture(scope="module")
def four_workers(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Limit 2, patient."""
    folder = tmp_path_factory.mktemp("four_workers")
    with running_service(database_url, folder, workers=4, default_device_limit=2, **PATIENT) as service:
        yield service


@pytest.mark.locking
def test_race_against_four_workers_is_exact(
    command: Command, database_url: str, four_workers: Service
) -> None:
    words = ("race", "--calls", "300", "--limit", "2", "--processes", "4", "--concurrency", "100")
    told = command(*words, url=four_workers.url, database_url=database_url)
    assert told.status == 0, told
    assert "2 × register 201; 298 × register 409" in told.out  # noqa: RUF001 - times


def test_the_metrics_of_four_workers_are_what_the_load_test_has_counted_itself(
    command: Command, database_url: str, four_workers: Service
) -> None:
    before = scrape(four_workers.url)
    words = ("race", "--users", "5", "--calls", "1000", "--limit", "2", "--processes", "4")
    mix = ("--concurrency", "100", "--mix", "register=5,repeat=2,revoke=3", "--out", "results")
    told = command(*words, *mix, url=four_workers.url, database_url=database_url)
    assert told.status == 0, told
    found = scrape(four_workers.url).since(before)
    _, samples = record.read(Path("results"))
    # Beside them the load test looks, by GET, and before all tries one device: registers it, and revokes it.
    requests = found.by("cupo_http_request_duration_seconds_count", "method", "status", "code")
    answers = Counter(
        ("DELETE" if sample.action == "revoke" else "POST", str(sample.status), sample.code or "none")
        for sample in samples
    )
    answers.update([("POST", "201", "none"), ("DELETE", "204", "none")])
    assert {answer: count for answer, count in requests.items() if answer[0] != "GET"} == answers
    outcomes = found.by("cupo_registrations_total", "outcome")
    assert outcomes == {
        ("created",): answers["POST", "201", "none"],
        ("known",): answers["POST", "200", "none"],
        ("refused",): answers["POST", "409", "device_limit_reached"],
    }
    assert answers.total() == 1000 + 2
    # One for each that got the lock alone, and one for each group: a refusal without a lock has none.
    assert 0 < found.value("cupo_critical_section_seconds_count") <= 1000 + 2


@pytest.mark.locking
def test_race_without_the_lock_exits_1_and_names_the_users(
    command: Command, database_url: str, folder: Path
) -> None:
    # Ten users, so that it does not hang on one: each is broken nearly every time.
    words = ("race", "--users", "10", "--calls", "300", "--processes", "2", "--concurrency", "100")
    with running_service(
        database_url, folder, workers=2, application="tests.lockless:app", default_device_limit=2, **PATIENT
    ) as service:
        told = command(*words, "--seed", "301", url=service.url, database_url=database_url)
    users = range(first := Plan(301, 10, 1, 2, parse_mix("register=1")).first_user, first + 10)
    assert told.status == 1, told
    assert "BROKEN The limit was broken for" in told.out
    assert any(f"user {user}: over limit" in told.out for user in users)


@pytest.mark.locking
def test_mixed_calls_that_overlap_are_not_accused(
    command: Command, database_url: str, service: Service
) -> None:
    mix = "register=5,repeat=2,revoke=3,list=1"
    words = (
        "race",
        "--users",
        "5",
        "--calls",
        "300",
        "--processes",
        "2",
        "--concurrency",
        "60",
        "--mix",
        mix,
    )
    told = command(*words, url=service.url, database_url=database_url)
    assert told.status == 0, told


def test_steady_run_keeps_its_schedule(command: Command, database_url: str, service: Service) -> None:
    words = ("steady", "--rate", "40/s", "--ramp", "1s", "--duration", "5s", "--users", "30")
    told = command(*words, url=service.url, database_url=database_url)
    assert told.status == 0, told
    share = float(told.out.split("sent/planned ")[1].split()[0])
    assert share >= 0.99
