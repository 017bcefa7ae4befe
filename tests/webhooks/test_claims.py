"""Who has a delivery: one claim at a time, within the cap of its endpoint, and for as long as its lease."""

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from app.db import Database
from app.settings import Settings, load_settings
from app.webhooks.claim import claim, give_back, rescue, settle, settlement
from app.webhooks.claim_queries import in_flight
from app.webhooks.deliver import Attempt
from app.webhooks.deliveries import Delivery
from app.webhooks.retry import MOST_ATTEMPTS
from tests.proxy import Fate, proxied
from tests.services import ROOT_KEY
from tests.webhooks.rows import put_delivery, put_endpoint, read, run

pytestmark = [pytest.mark.locking, pytest.mark.usefixtures("own")]

DELIVERED = Attempt("delivered", 0.01, 200)
FAILED = Attempt("failed", 0.01, 500, error="status 500", excerpt="no")
END_LEASES = "UPDATE webhook_deliveries SET claimed_until = UTC_TIMESTAMP(6) WHERE state = 'claimed'"
STATES = "SELECT state FROM webhook_deliveries ORDER BY id"


def put(engine: Engine, endpoint: int, how_many: int) -> None:
    for user in range(1, how_many + 1):
        put_delivery(engine, endpoint, user)


def claim_some(db: Database, free: int = 16, most_in_flight: int = 2) -> list[Delivery]:
    return claim(db, str(uuid.uuid4()), free, most_in_flight)


def test_a_claim_has_all_that_is_needed_to_send_it(own_db: Database, engine: Engine) -> None:
    until = read(engine, "SELECT UTC_TIMESTAMP(6) + INTERVAL 1 HOUR")[0]
    both: dict[str, Any] = {"secret": b"new", "previous_secret": b"old"}
    endpoint = put_endpoint(engine, "https://a.example/", **both, previous_secret_until=until)
    put_delivery(engine, endpoint, None, event_id=None, head_user_id=None, type="webhook.test")
    (one,) = claim_some(own_db)
    assert (one.endpoint.id, one.endpoint.url) == (endpoint, "https://a.example/")
    assert (one.type, one.attempts, one.event) == ("webhook.test", 1, None)
    assert one.endpoint.secrets == (b"new", b"old")


def test_a_secret_of_before_counts_until_its_time(own_db: Database, engine: Engine) -> None:
    now = read(engine, "SELECT UTC_TIMESTAMP(6)")[0]
    both: dict[str, Any] = {"secret": b"new", "previous_secret": b"old"}
    put(engine, put_endpoint(engine, **both, previous_secret_until=now), 1)
    assert [one.endpoint.secrets for one in claim_some(own_db)] == [(b"new",)]


def test_the_longest_due_of_an_endpoint_are_claimed_first(own_db: Database, engine: Engine) -> None:
    endpoint = put_endpoint(engine)
    for user, year in enumerate((2023, 2021, 2022), start=1):
        put_delivery(engine, endpoint, user, due_at=f"{year}-01-01 00:00:00")
    assert sorted(one.id for one in claim_some(own_db)) == [2, 3]


@pytest.mark.parametrize("column", ["disabled_at", "deleted_at"])
def test_of_an_endpoint_that_is_not_served_nothing_is_claimed(
    own_db: Database, engine: Engine, column: str
) -> None:
    cause = {"disabled_because": "asked"} if column == "disabled_at" else {}
    put(engine, put_endpoint(engine, **{column: "2026-11-30 00:00:00"}, **cause), 1)
    assert claim_some(own_db) == []


def test_an_endpoint_that_is_disabled_between_the_look_and_the_lock_is_left_alone(
    own: Settings, engine: Engine
) -> None:
    put(engine, put_endpoint(engine), 1)
    disable = "UPDATE webhook_endpoints SET disabled_at = UTC_TIMESTAMP(6), disabled_because = 'asked'"
    with proxied(own.database_url.get_secret_value()) as (proxy, url):

        def disable_before_the_lock(sql: str) -> Fate:
            if sql.startswith("UPDATE webhook_endpoints"):
                proxy.fate = lambda _sql: Fate.PASS
                run(engine, disable)
            return Fate.PASS

        db = Database(load_settings(database_url=url, root_key=ROOT_KEY))
        proxy.fate = disable_before_the_lock
        assert claim_some(db) == []
        db.close()


def test_claims_at_once_take_each_delivery_once_and_never_more_of_an_endpoint_than_may_be(
    own: Settings, engine: Engine
) -> None:
    """8 claimers hold what they have until all have claimed: all of it is in flight at once."""
    endpoints = [put_endpoint(engine) for _ in range(5)]
    for endpoint in endpoints:
        put(engine, endpoint, 10)
    databases = [Database(own) for _ in range(8)]
    ready = threading.Barrier(8)

    def work(db: Database) -> list[Delivery]:
        ready.wait(10)
        return claim_some(db, 3) + claim_some(db, 3)

    for _ in range(5):
        with ThreadPoolExecutor(8) as threads:
            claimed = [one for those in threads.map(work, databases) for one in those]
        assert len({one.id for one in claimed}) == len(claimed)
        assert Counter(one.endpoint.id for one in claimed) == dict.fromkeys(endpoints, 2)
        assert databases[0].transact(in_flight) == dict.fromkeys(endpoints, 2)
        databases[0].transact(settle, [settlement(one, DELIVERED) for one in claimed])
    for db in databases:
        db.close()


def test_an_endpoint_with_little_waits_for_none_with_much(own_db: Database, engine: Engine) -> None:
    giant, small = put_endpoint(engine), put_endpoint(engine)
    put(engine, giant, 50)
    assert [one.endpoint.id for one in claim_some(own_db)] == [giant, giant]
    put(engine, small, 1)
    assert [one.endpoint.id for one in claim_some(own_db, 1)] == [small]


def test_a_settle_after_the_lease_is_refused_and_changes_nothing(own_db: Database, engine: Engine) -> None:
    put(engine, put_endpoint(engine), 1)
    (paused,) = claim_some(own_db)
    run(engine, END_LEASES)
    assert rescue(own_db) == 1
    assert own_db.transact(settle, [settlement(paused, DELIVERED)]) == {paused.id}
    assert read(engine, STATES) == ["retrying"]
    (owner,) = claim_some(own_db)
    assert own_db.transact(settle, [settlement(paused, DELIVERED)]) == {paused.id}
    assert own_db.transact(give_back, [paused]) == 0
    query = "SELECT state, claimed_by, attempts FROM webhook_deliveries"
    assert read(engine, query) == [("claimed", owner.token, 2)]
    assert own_db.transact(settle, [settlement(owner, DELIVERED)]) == frozenset()


def test_a_refused_settle_does_not_cost_the_others_theirs(own_db: Database, engine: Engine) -> None:
    put(engine, put_endpoint(engine), 2)
    both = claim_some(own_db)
    run(engine, f"{END_LEASES} AND id = 1")
    rescue(own_db)
    assert own_db.transact(settle, [settlement(one, DELIVERED) for one in both]) == {1}
    assert read(engine, STATES) == ["retrying", "delivered"]


def test_what_a_lost_worker_had_comes_back_at_the_end_of_its_lease_and_no_sooner(
    own_db: Database, engine: Engine
) -> None:
    put(engine, put_endpoint(engine), 2)
    assert len(claim_some(own_db)) == 2
    assert rescue(own_db) == 0
    run(engine, END_LEASES)
    assert rescue(own_db) == 2
    assert sorted(one.attempts for one in claim_some(own_db)) == [2, 2]


def test_what_loses_its_worker_each_time_is_discarded_in_the_end(own_db: Database, engine: Engine) -> None:
    put_delivery(engine, put_endpoint(engine), 1, state="retrying", attempts=MOST_ATTEMPTS - 1)
    claim_some(own_db)
    run(engine, END_LEASES)
    assert rescue(own_db) == 1
    assert read(engine, STATES) == ["discarded"]


def test_what_is_given_back_was_not_tried(own_db: Database, engine: Engine) -> None:
    endpoint = put_endpoint(engine)
    put_delivery(engine, endpoint, 1)
    put_delivery(engine, endpoint, 2, state="retrying", attempts=3)
    assert own_db.transact(give_back, claim_some(own_db)) == 2
    query = "SELECT state, attempts FROM webhook_deliveries ORDER BY id"
    assert read(engine, query) == [("pending", 0), ("retrying", 3)]


def test_a_failure_says_why_and_is_retried_by_the_schedule(own_db: Database, engine: Engine) -> None:
    put(engine, put_endpoint(engine), 1)
    own_db.transact(settle, [settlement(one, FAILED) for one in claim_some(own_db)])
    query = (
        "SELECT state, last_status, last_error, last_answer, last_duration_ms,"
        " TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), due_at) BETWEEN 2 AND 6 FROM webhook_deliveries"
    )
    assert read(engine, query) == [("retrying", 500, "status 500", "no", 10, 1)]


def test_the_last_failure_discards(own_db: Database, engine: Engine) -> None:
    put_delivery(engine, put_endpoint(engine), 1, state="retrying", attempts=MOST_ATTEMPTS - 1)
    own_db.transact(settle, [settlement(one, FAILED) for one in claim_some(own_db)])
    assert read(engine, STATES) == ["discarded"]


def test_a_receiver_that_is_gone_is_disabled_unless_it_has_moved(own_db: Database, engine: Engine) -> None:
    for number in range(2):
        put(engine, put_endpoint(engine, f"https://{number}.example/"), 1)
    claimed = claim_some(own_db)
    run(engine, "UPDATE webhook_endpoints SET url = 'https://elsewhere.example/' WHERE id = 2")
    own_db.transact(settle, [settlement(one, Attempt("gone", 0.01, 410)) for one in claimed])
    query = "SELECT disabled_because, revision FROM webhook_endpoints ORDER BY id"
    assert read(engine, query) == [("gone", 2), (None, 1)]
    assert read(engine, STATES) == ["retrying", "retrying"]


@pytest.mark.parametrize("fate", [Fate.CUT_BEFORE, Fate.CUT_AFTER])
def test_a_claim_and_a_settle_whose_commit_is_lost_are_done_once(
    own: Settings, engine: Engine, fate: Fate
) -> None:
    put(engine, put_endpoint(engine), 2)
    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        db = Database(load_settings(database_url=url, root_key=ROOT_KEY, database_pool_size=1))

        def lose_commit_of(statement: str) -> None:
            seen: list[str] = []

            def decide(sql: str) -> Fate:
                if sql.startswith(statement):
                    seen.append(sql)
                if not seen or sql != "COMMIT":
                    return Fate.PASS
                proxy.fate = lambda _sql: Fate.PASS
                return fate

            proxy.fate = decide

        lose_commit_of("UPDATE webhook_deliveries")
        claimed = claim_some(db)
        assert sorted(one.id for one in claimed) == [1, 2]
        assert read(engine, "SELECT attempts FROM webhook_deliveries") == [1, 1]
        lose_commit_of("UPDATE webhook_deliveries")
        assert db.transact(settle, [settlement(one, DELIVERED) for one in claimed]) == frozenset()
        db.close()
    assert read(engine, STATES) == ["delivered", "delivered"]
