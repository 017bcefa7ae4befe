"""More calls than connections, and a database that is gone, slow or stuck, as HTTP callers see it."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine, text

from tests.callers import at_once, by_many, one_by_one, register, statuses
from tests.databases import migrated_database
from tests.proxy import Fate, proxied
from tests.servers import private_server
from tests.services import Service, running_service

pytestmark = pytest.mark.locking


def codes(answers: list[httpx.Response]) -> set[str]:
    """The problem codes of the 503 answers, each of which must say when to come back."""
    refused = [answer for answer in answers if answer.status_code == 503]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    return {answer.json()["code"] for answer in refused}


def test_200_callers_on_a_pool_of_5_are_served_or_told_so_soon_and_nothing_stalls(
    database_url: str, new_user: Callable[[], int], folder: Path
) -> None:
    user, other = new_user(), new_user()
    with running_service(
        database_url, folder, database_pool_size=5, database_pool_wait_seconds=1, lock_budget_seconds=3
    ) as service:
        assert statuses(one_by_one(service, [register(user, "first"), register(other, "first")])) == {201: 2}
        holder = create_engine(database_url)
        with holder.connect() as tx:
            query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
            assert tx.execute(text(query), {"user": user}).all()
            began = time.monotonic()
            answers = at_once(service, [register(user, f"device-{number}") for number in range(200)])
            took_seconds = time.monotonic() - began
        holder.dispose()
        assert statuses(answers) == {503: 200}
        assert codes(answers) == {"contention", "overloaded"}
        assert sum(answer.json()["code"] == "contention" for answer in answers) == 5
        assert took_seconds < 10
        # Every thread and connection is back: a full house of calls is served.
        assert statuses(at_once(service, [register(other, f"device-{number}") for number in range(5)])) == {
            201: 2,
            409: 3,
        }


def test_200_callers_on_a_pool_of_5_all_get_their_answer_where_nobody_holds_a_lock(
    database_url: str, new_user: Callable[[], int], folder: Path
) -> None:
    users = [new_user() for _ in range(20)]
    with running_service(
        database_url, folder, database_pool_size=5, database_pool_wait_seconds=30, default_device_limit=2
    ) as service:
        answers = at_once(service, [register(user, f"device-{n}") for n in range(10) for user in users])
    assert statuses(answers) == {201: 40, 409: 160}


def test_livez_answers_while_every_connection_waits(
    database_url: str, new_user: Callable[[], int], folder: Path
) -> None:
    user = new_user()
    with (
        proxied(database_url) as (proxy, url),
        running_service(url, folder, database_pool_size=2, lock_budget_seconds=2) as service,
    ):
        one_by_one(service, [register(user, "first")])
        stuck = threading.Event()

        def freeze_at_the_lock(sql: str) -> Fate:
            if "FOR UPDATE" in sql:
                proxy.freeze()
                stuck.set()
            return Fate.PASS

        proxy.fate = freeze_at_the_lock
        answers: list[httpx.Response] = []
        callers = threading.Thread(
            target=lambda: answers.extend(by_many(service, [register(user, "second")] * 4, callers=4))
        )
        callers.start()
        assert stuck.wait(10)
        began = time.monotonic()
        assert httpx.get(f"{service.url}/livez").status_code == 200
        ready = httpx.get(f"{service.url}/readyz")
        assert time.monotonic() - began < 4
        assert ready.status_code == 503
        assert [check["name"] for check in ready.json()["checks"] if not check["ok"]] == ["reachable"]
        callers.join()
        assert statuses(answers) == {503: 4}
        assert codes(answers) <= {"database_unavailable", "overloaded"}
        proxy.fate = lambda _sql: Fate.PASS
        proxy.thaw()
        assert statuses(one_by_one(service, [register(user, "second")])).keys() <= {200, 201}


def test_a_database_that_goes_and_comes_back_costs_503_and_no_restart(
    pytestconfig: pytest.Config, folder: Path
) -> None:
    with (
        private_server(pytestconfig.getoption("--server")) as own,
        migrated_database(own, "cupo_test_outage") as url,
        running_service(url, folder) as service,
    ):
        assert statuses(one_by_one(service, [register(1, "before")])) == {201: 1}
        own.kill()
        began = time.monotonic()
        answers = one_by_one(service, [register(1, "during")])
        assert time.monotonic() - began < 10
        assert codes(answers) == {"database_unavailable"}
        assert readiness(service) == (503, ["reachable"])
        assert httpx.get(f"{service.url}/livez").status_code == 200
        own.start()
        assert statuses(one_by_one(service, [register(1, "after"), register(1, "before")])) == {
            201: 1,
            200: 1,
        }
        assert readiness(service) == (200, [])


def readiness(service: Service) -> tuple[int, list[str]]:
    answer = httpx.get(f"{service.url}/readyz")
    return answer.status_code, [check["name"] for check in answer.json()["checks"] if not check["ok"]]
