"""What is counted: once, by bounded labels, when it is final."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client import REGISTRY, generate_latest
from sqlalchemy import Engine, text

from app import metrics
from app.db import Database
from app.errors import Contention, DatabaseUnavailable
from app.settings import load_settings
from tests.callers import at_once, one_by_one, register, statuses
from tests.ops.conftest import Log
from tests.programs import PROMTOOL, program
from tests.proxy import Fate, proxied
from tests.scraping import Metrics, scrape
from tests.services import ROOT_KEY, Service, running_service
from tests.use_cases import register as registering

NewUser = Callable[[], int]
ROUTE = "/v1/users/{user_id}/devices"


@pytest.fixture
def counted(service: Service) -> Callable[[], Metrics]:
    """What was counted since the test began."""
    before = scrape(service.url)
    return lambda: scrape(service.url).since(before)


@pytest.fixture
def counted_here() -> Callable[[], Metrics]:
    """The same of this process, for what runs in it."""

    def look() -> Metrics:
        return Metrics.of(generate_latest(REGISTRY).decode())

    before = look()
    return lambda: look().since(before)


def test_promtool_finds_nothing_to_say(api: httpx.Client, new_user: NewUser) -> None:
    one_user = f"/v1/users/{new_user()}"
    for _ in range(2):
        api.post(f"{one_user}/devices", json={})
    api.put("/nowhere")
    checked = subprocess.run(  # noqa: S603 - Debian's
        [program(PROMTOOL), "check", "metrics"],
        input=api.get("/metrics").content,
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_openmetrics_is_given_to_whoever_asks_for_it(api: httpx.Client) -> None:
    plain = api.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    asked = api.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert asked.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert asked.text.endswith("# EOF\n")


def test_metrics_need_no_key(service: Service) -> None:
    assert httpx.get(f"{service.url}/metrics").status_code == 200


def test_each_known_outcome_is_there_at_0_from_the_start() -> None:
    found = Metrics.of(generate_latest(REGISTRY).decode())
    for counter, outcomes in metrics.OUTCOMES.items():
        (family,) = counter.collect()
        assert len({tuple(one.labels.values()) for one in family.samples}) == len(outcomes)
    assert found.value("cupo_build_info") == 1


def test_whatever_a_client_makes_up_is_one_value(api: httpx.Client, counted: Callable[[], Metrics]) -> None:
    for number in range(3):
        api.get(f"/made-up/{number}")
        api.request("PROPFIND", f"/made-up/{number}")
        api.request("MKCOL", f"/v1/users/{number}/devices")
    found = counted()
    assert found.by("cupo_http_request_duration_seconds_count", "route", "method", "status", "code") == {
        ("unknown", "GET", "404", "not_found"): 3,
        ("unknown", "unknown", "404", "not_found"): 3,
        (ROUTE, "unknown", "405", "method_not_allowed"): 3,
        ("/metrics", "GET", "200", "none"): 1,  # the scrape before
    }


def test_head_is_counted_as_head_with_its_route(
    api: httpx.Client, new_user: NewUser, counted: Callable[[], Metrics]
) -> None:
    api.head(f"/v1/users/{new_user()}/devices")
    found = counted()
    assert found.value("cupo_http_request_duration_seconds_count", route=ROUTE, method="HEAD") == 1


def test_a_user_or_device_is_in_no_label(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    api.post(f"/v1/users/{user}/devices", json={"device_id": "a-device-that-stands-out"})
    api.get(f"/v1/users/{user}/devices/a-device-that-stands-out")
    found = api.get("/metrics").text
    assert str(user) not in found
    assert "stands-out" not in found


def test_registrations_are_counted_by_outcome(database_url: str, new_user: NewUser, folder: Path) -> None:
    user = new_user()
    with (
        running_service(database_url, folder, default_device_limit=2, max_registrations_per_day=5) as service,
        service.client() as api,
    ):
        path = f"/v1/users/{user}/devices"
        for fields, status in (
            ({"device_id": "a"}, 201),  # created
            ({"device_id": "b"}, 201),  # created
            ({"device_id": "a"}, 200),  # known
            ({"device_id": "c"}, 409),  # refused
            ({"device_id": "c", "replace_device_id": "none"}, 404),  # no outcome of a registration
            ({"device_id": "c", "replace_device_id": "a"}, 201),  # replaced
            ({"device_id": "d", "on_limit": "evict_oldest"}, 201),  # evicted
        ):
            assert api.post(path, json=fields).status_code == status
        assert api.delete(f"{path}/d?block=true").status_code == 204
        assert api.post(path, json={"device_id": "d"}).status_code == 403
        assert api.post(path, json={"device_id": "e"}).status_code == 201  # created
        assert api.post(path, json={"device_id": "f", "on_limit": "evict_oldest"}).status_code == 429
        found = scrape(service.url)
    assert found.by("cupo_registrations_total", "outcome") == {
        ("created",): 3,
        ("known",): 1,
        ("refused",): 1,
        ("replaced",): 1,
        ("evicted",): 1,
        ("blocked",): 1,
        ("churn",): 1,
    }


def test_a_kept_answer_that_is_given_again_is_no_registration(
    api: httpx.Client, new_user: NewUser, counted: Callable[[], Metrics]
) -> None:
    path, key = f"/v1/users/{new_user()}/devices", {"Idempotency-Key": "of-the-metrics"}
    for _ in range(3):
        assert api.post(path, json={"device_id": "a"}, headers=key).status_code == 201
    assert counted().by("cupo_registrations_total", "outcome") == {("created",): 1}


def test_a_registration_that_was_rolled_back_is_not_counted(
    database_url: str, new_user: NewUser, folder: Path
) -> None:
    with (
        proxied(database_url) as (proxy, url),
        running_service(url, folder, lock_budget_seconds=2) as service,
    ):
        user = new_user()
        assert statuses(one_by_one(service, [register(user, "a")])) == {201: 1}
        before = scrape(service.url)
        proxy.fate = lambda sql: Fate.CUT_BEFORE if sql == "COMMIT" else Fate.PASS
        key = {"Idempotency-Key": "never-committed"}
        # With a key, its answer is made before the COMMIT.
        call = replace(register(user, "b"), headers=key)
        assert statuses(one_by_one(service, [call])) == {503: 1}
        found = scrape(service.url).since(before)
        assert found.by("cupo_registrations_total", "outcome") == {}
        assert found.by("cupo_transactions_total", "outcome") == {("given_up",): 1}
        assert set(found.by("cupo_unknown_commits_total", "outcome")) == {("unresolved",)}
        assert found.value("cupo_transaction_retries_used_up_total") == 1
        assert found.value("cupo_transaction_retries_total") >= 1
        lost = found.value("cupo_database_errors_total", kind="lost_connection")
        assert lost == found.value("cupo_transaction_retries_total") + 1


@pytest.mark.locking
def test_a_lock_that_another_holds_for_a_second_is_in_the_histogram_and_in_the_log(
    api: httpx.Client,
    new_user: NewUser,
    auditor: Engine,
    counted: Callable[[], Metrics],
    log: Log,
) -> None:
    user = new_user()
    path = f"/v1/users/{user}/devices"
    assert api.post(path, json={}).status_code == 201
    with auditor.connect() as holder:
        holder.exec_driver_sql("BEGIN")
        query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
        assert holder.execute(text(query), {"user": user}).all()
        release = threading.Timer(1, lambda: holder.exec_driver_sql("ROLLBACK"))
        release.start()
        answer = api.post(path, json={}, headers={"X-Request-ID": "waited-a-second"})
        release.join()
    assert answer.status_code == 201
    found = counted()
    waits = "cupo_lock_wait_seconds_bucket"
    assert found.value(waits, le="+Inf") - found.value(waits, le="0.5") == 1
    assert 0.9 < found.value("cupo_lock_wait_seconds_sum") < 3
    held = "cupo_critical_section_seconds"
    assert found.value(f"{held}_count") == 2
    assert found.value(f"{held}_sum") < 0.5
    line = log.wait_for(request_id="waited-a-second", event="Answered")
    assert 0.9 < line["lock_wait_seconds"] <= line["seconds"]
    slow = log.wait_for(request_id="waited-a-second", event="Slow transaction")
    assert slow["transaction"] == "register"
    assert 0.9 < slow["lock_wait_seconds"] <= slow["seconds"]


@pytest.fixture
def impatient(database_url: str) -> Iterator[Database]:
    database = Database(
        load_settings(database_url=database_url, root_key=ROOT_KEY, lock_wait_seconds=1, contention_retries=1)
    )
    yield database
    database.close()


@pytest.mark.locking
def test_a_lock_that_is_not_to_be_had_is_counted_as_what_it_is(
    impatient: Database,
    db: Database,
    new_user: NewUser,
    auditor: Engine,
    counted_here: Callable[[], Metrics],
) -> None:
    user = new_user()
    db.transact(registering, user, "a")
    with auditor.connect() as holder:
        holder.exec_driver_sql("BEGIN")
        query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
        assert holder.execute(text(query), {"user": user}).all()
        with pytest.raises(Contention):
            impatient.transact(registering, user, "b")
        holder.exec_driver_sql("ROLLBACK")
    found = counted_here()
    assert found.by("cupo_database_errors_total", "kind") == {("lock_timeout",): 2}
    assert found.value("cupo_transaction_retries_total") == 1
    assert found.value("cupo_transaction_retries_used_up_total") == 1
    assert found.value("cupo_transactions_total", outcome="given_up") == 1
    assert found.value("cupo_lock_wait_seconds_bucket", le="0.5") == 2  # the two of the first registration
    assert found.value("cupo_critical_section_seconds_count") == 1


@pytest.mark.locking
@pytest.mark.parametrize("fate", [Fate.CUT_BEFORE, Fate.CUT_AFTER])
def test_a_commit_of_unknown_outcome_is_resolved_and_counted_once(
    database_url: str, new_user: NewUser, counted_here: Callable[[], Metrics], fate: Fate
) -> None:
    with proxied(database_url) as (proxy, url):
        db = Database(load_settings(database_url=url, root_key=ROOT_KEY))
        user = new_user()
        db.transact(registering, user, "a")
        before = counted_here()
        fates = iter([fate])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS
        assert db.transact(registering, user, "b").created
        found = counted_here().since(before)
        db.close()
    assert found.by("cupo_unknown_commits_total", "outcome") == {("resolved",): 1}
    assert found.by("cupo_database_errors_total", "kind") == {("lost_connection",): 1}
    assert found.by("cupo_transactions_total", "outcome") == {("committed",): 1}
    assert found.value("cupo_transaction_retries_total") == 1
    assert found.value("cupo_transaction_retries_used_up_total") == 0


def test_a_database_that_lacks_tables_is_no_retry(
    tmp_path: Path, counted_here: Callable[[], Metrics]
) -> None:
    db = Database(load_settings(database_url=f"sqlite:///{tmp_path}/empty.db", root_key=ROOT_KEY))
    with pytest.raises(DatabaseUnavailable):
        db.transact(registering, 1, "a")
    db.close()
    found = counted_here()
    assert found.by("cupo_database_errors_total", "kind") == {("unfit",): 1}
    assert found.value("cupo_transaction_retries_used_up_total") == 0


@pytest.mark.locking
def test_the_pool_shows_who_has_a_connection_who_waits_and_who_gave_up(
    database_url: str, new_user: NewUser, folder: Path, auditor: Engine
) -> None:
    user = new_user()
    with running_service(
        database_url, folder, database_pool_size=2, database_pool_wait_seconds=2, lock_budget_seconds=5
    ) as service:
        one_by_one(service, [register(user, "a")])
        before = scrape(service.url)
        looked: list[Metrics] = []
        with auditor.connect() as holder:
            holder.exec_driver_sql("BEGIN")
            query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
            assert holder.execute(text(query), {"user": user}).all()
            look = threading.Timer(1, lambda: looked.append(scrape(service.url)))
            look.start()
            answers = at_once(service, [register(user, f"device-{number}") for number in range(5)])
            look.join()
            holder.exec_driver_sql("ROLLBACK")
        after = scrape(service.url)
    assert statuses(answers) == {503: 5}
    during = looked[0]
    assert during.value("cupo_database_pool_size") == 2
    assert during.value("cupo_database_pool_in_use") == 2
    assert during.value("cupo_database_threads_in_use") == 2
    assert during.value("cupo_database_pool_waiting") == 3
    assert during.value("cupo_http_requests_in_progress") == 6
    assert after.since(before).value("cupo_database_pool_timeouts_total") == 3
    for gauge in ("pool_in_use", "threads_in_use", "pool_waiting"):
        assert after.value(f"cupo_database_{gauge}") == 0
    assert after.value("cupo_http_requests_in_progress") == 1


def test_readiness_is_a_series(service: Service) -> None:
    httpx.get(f"{service.url}/readyz")
    assert scrape(service.url).value("cupo_ready") == 1
