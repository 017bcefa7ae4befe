"""From events to deliveries: exactly once, in order, and nothing is left behind."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress

import pytest
from sqlalchemy import Engine, create_engine, text

from app.db import Database, Tx
from app.migrations import migrate
from app.settings import Settings, load_settings
from app.users.service import erase_rest, erase_some
from app.webhooks.changes import discard, forget_ended, retry
from app.webhooks.claim import claim, settle, settlement
from app.webhooks.deliver import Attempt
from app.webhooks.fan_out import fan_out
from app.webhooks.outbox_queries import oldest_undelivered
from app.webhooks.stragglers import Place, promote_stragglers
from tests.lifecycle.steps import connection_id, wait_until_it_waits
from tests.proxy import Fate, proxied
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY
from tests.use_cases import ORIGIN, register, revoke
from tests.webhooks.rows import put_delivery, put_endpoint, put_events, read, run

pytestmark = [pytest.mark.locking, pytest.mark.usefixtures("own")]

TOLD = "SELECT event_id, endpoint_id FROM webhook_deliveries ORDER BY event_id, endpoint_id"
STATES = "SELECT state FROM webhook_deliveries ORDER BY id"
DELIVERED = Attempt("delivered", 0.01, 200)
FAILED = Attempt("failed", 0.01, 500)


def fan_out_all(db: Database) -> int:
    """Of how many events."""
    return sum(iter(lambda: db.transact(fan_out), 0))


def send_one(db: Database, attempt: Attempt = DELIVERED) -> None:
    """One pass of a worker whose receivers all answer like this."""
    claimed = claim(db, "a-token", 16, 2)
    assert claimed
    assert db.transact(settle, [settlement(one, attempt) for one in claimed]) == frozenset()


def test_each_event_is_told_once_to_each_endpoint(own_db: Database, engine: Engine) -> None:
    endpoints = [put_endpoint(engine), put_endpoint(engine)]
    put_events(engine, 3)
    assert fan_out_all(own_db) == 3
    assert fan_out_all(own_db) == 0
    assert read(engine, TOLD) == [(event, endpoint) for event in (1, 2, 3) for endpoint in endpoints]


def test_an_endpoint_hears_of_the_types_that_it_named(own_db: Database, engine: Engine) -> None:
    put_endpoint(engine, event_types=["device.revoked", "user.erased"])
    own_db.transact(register, 1, "a")
    own_db.transact(revoke, 1, "a")
    fan_out_all(own_db)
    assert read(engine, "SELECT type FROM webhook_deliveries") == ["device.revoked"]


def test_an_endpoint_hears_of_what_happened_from_its_own_time_on(own_db: Database, engine: Engine) -> None:
    put_events(engine, 1)
    now = read(engine, "SELECT UTC_TIMESTAMP(6)")[0]
    endpoint = put_endpoint(engine, created_at=now)
    put_events(engine, 1)
    assert fan_out_all(own_db) == 2
    assert read(engine, TOLD) == [(2, endpoint)]


@pytest.mark.parametrize("column", ["disabled_at", "deleted_at"])
def test_an_endpoint_that_is_not_served_hears_of_nothing(
    own_db: Database, engine: Engine, column: str
) -> None:
    cause = {"disabled_because": "asked"} if column == "disabled_at" else {}
    put_endpoint(engine, **{column: "2026-11-30 00:00:00"}, **cause)
    put_events(engine, 1)
    assert fan_out_all(own_db) == 1
    assert read(engine, TOLD) == []


def test_a_change_that_rolls_back_leaves_no_event_and_no_delivery(own_db: Database, engine: Engine) -> None:
    put_endpoint(engine)

    def fail_after_all(tx: Tx) -> None:
        register(tx, 1, "a")
        raise KeyError

    with pytest.raises(KeyError):
        own_db.transact(fail_after_all)
    assert fan_out_all(own_db) == 0
    assert read(engine, "SELECT id FROM events") == read(engine, TOLD) == []


def test_an_event_that_commits_after_a_later_number_is_told_as_well(
    own: Settings, own_db: Database, engine: Engine
) -> None:
    """Numbers are given at INSERT: a relay that remembers the last one it saw would pass this by."""
    put_endpoint(engine)
    slow = create_engine(own.url)
    statement = (
        "INSERT INTO events (user_id, occurred_at, type, actor, request_id, data)"
        " VALUES (9, UTC_TIMESTAMP(6), 'device.revoked', 'tests', 'r', '{}')"
    )
    with slow.connect() as tx:
        tx.execute(text(statement))
        put_events(engine, 1)
        assert fan_out_all(own_db) == 1  # and it has not waited for the other
        tx.commit()
    slow.dispose()
    assert fan_out_all(own_db) == 1
    assert read(engine, "SELECT event_id FROM webhook_deliveries ORDER BY id") == [2, 1]


@pytest.mark.parametrize("has_named_lock", [True, False], ids=["alone", "from several nodes"])
def test_workers_that_fan_out_at_once_make_each_delivery_once_and_in_order(
    own: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch, has_named_lock: bool
) -> None:
    """Between the nodes of a cluster a named lock holds back nobody; the rows do."""
    if not has_named_lock:
        monkeypatch.setattr("app.webhooks.fan_out.named_lock", lambda *_: nullcontext(enter_result=True))
    for _ in range(10):
        put_endpoint(engine)
    put_events(engine, 300, users=7)
    databases = [Database(own) for _ in range(4)]
    ready = threading.Barrier(4)

    def work(db: Database) -> int:
        ready.wait(10)
        done = 0
        while read(engine, "SELECT 1 FROM events WHERE fanned_out = 0 LIMIT 1"):
            done += db.transact(fan_out)
        return done

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, databases)) == 300
    for db in databases:
        db.close()
    assert len(read(engine, TOLD)) == 3000
    by_pair = (
        "SELECT endpoint_id, user_id, event_id FROM webhook_deliveries ORDER BY endpoint_id, user_id, id"
    )
    assert read(engine, by_pair) == sorted(read(engine, by_pair))
    assert read(engine, "SELECT COUNT(*) FROM webhook_deliveries WHERE state = 'pending'") == [70]


def test_with_no_endpoint_the_outbox_is_emptied_in_large_batches(own_db: Database, engine: Engine) -> None:
    put_events(engine, 1200)
    assert [own_db.transact(fan_out) for _ in range(4)] == [500, 500, 200, 0]


def test_what_happened_before_the_upgrade_is_told_to_nobody(server: Server) -> None:
    with fresh_database(server, "cupo_test_upgrade") as url:
        settings = load_settings(database_url=url, root_key=ROOT_KEY)
        migrate(settings)
        migrate(settings, "0002")
        engine = create_engine(settings.url, isolation_level="AUTOCOMMIT")
        put_events(engine, 5)
        migrate(settings)
        put_endpoint(engine)
        put_events(engine, 1)
        db = Database(settings)
        assert fan_out_all(db) == 1
        assert read(engine, "SELECT event_id FROM webhook_deliveries") == read(
            engine, "SELECT MAX(id) FROM events"
        )
        db.close()
        engine.dispose()


def test_of_one_user_the_next_delivery_goes_when_the_one_before_has_ended(
    own_db: Database, engine: Engine
) -> None:
    put_endpoint(engine)
    put_events(engine, 3, users=1)
    fan_out_all(own_db)
    assert read(engine, STATES) == ["pending", "waiting", "waiting"]
    send_one(own_db, FAILED)
    assert read(engine, STATES) == ["retrying", "waiting", "waiting"]
    assert claim(own_db, "none-is-due", 16, 2) == []
    run(engine, "UPDATE webhook_deliveries SET due_at = UTC_TIMESTAMP(6) WHERE state = 'retrying'")
    send_one(own_db)
    assert read(engine, STATES) == ["delivered", "pending", "waiting"]


def test_a_discarded_delivery_lets_the_next_one_go_and_comes_back_behind_it(
    own_db: Database, engine: Engine
) -> None:
    put_endpoint(engine)
    put_events(engine, 3, users=1)
    fan_out_all(own_db)
    assert own_db.transact(discard, 1)
    assert read(engine, STATES) == ["discarded", "pending", "waiting"]
    assert own_db.transact(retry, 1)
    assert read(engine, STATES) == ["waiting", "pending", "waiting"]
    send_one(own_db)
    assert read(engine, STATES) == ["pending", "delivered", "waiting"]


def test_a_discarded_delivery_that_stands_behind_nobody_goes_at_once(
    own_db: Database, engine: Engine
) -> None:
    put_endpoint(engine)
    put_events(engine, 1)
    fan_out_all(own_db)
    assert own_db.transact(discard, 1)
    assert not own_db.transact(discard, 1)
    assert own_db.transact(retry, 1)
    assert read(engine, STATES) == ["pending"]
    assert not own_db.transact(retry, 1)


def test_fan_outs_and_settles_at_once_leave_nothing_behind(own: Settings, engine: Engine) -> None:
    """Each settle looks for what stands behind, while fan-outs put something there."""
    for _ in range(2):
        put_endpoint(engine)
    databases = [Database(own) for _ in range(4)]
    writing = threading.Event()
    ready = threading.Barrier(4)

    def write() -> None:
        ready.wait(10)
        for _ in range(60):
            put_events(engine, 4, users=2)
        writing.set()

    def relay(db: Database) -> None:
        ready.wait(10)
        while db.transact(fan_out) or not writing.is_set():
            pass

    def send(db: Database) -> None:
        ready.wait(10)
        open_ones = "SELECT 1 FROM webhook_deliveries WHERE state IN ('pending', 'claimed') LIMIT 1"
        while relaying.running() or read(engine, open_ones):
            claimed = claim(db, f"token-{id(db)}", 16, 2)
            if claimed:
                db.transact(settle, [settlement(one, DELIVERED) for one in claimed])

    with ThreadPoolExecutor(4) as threads:
        relaying = threads.submit(relay, databases[0])
        others = [threads.submit(write), *(threads.submit(send, db) for db in databases[1:3])]
        for one in (relaying, *others):
            one.result()
    for db in databases:
        db.close()
    assert read(engine, "SELECT state, COUNT(*) FROM webhook_deliveries GROUP BY state") == [
        ("delivered", 480)
    ]
    in_turn = (
        "SELECT event_id FROM webhook_deliveries WHERE endpoint_id = 1 AND user_id = 1 ORDER BY ended_at"
    )
    assert read(engine, in_turn) == sorted(read(engine, in_turn))


@contextmanager
def before_its_commit(own: Settings, act: Callable[[], None]) -> Iterator[Database]:
    """A database that does `act` once, between the UPDATE that ends a delivery and the next COMMIT."""
    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        ended = threading.Event()

        def watch(sql: str) -> Fate:
            if sql.startswith("UPDATE webhook_deliveries") and "'delivered'" in sql:
                ended.set()
            elif ended.is_set() and sql == "COMMIT":
                proxy.fate = lambda _sql: Fate.PASS
                act()
            return Fate.PASS

        proxy.fate = watch
        db = Database(load_settings(database_url=url, root_key=ROOT_KEY))
        yield db
        db.close()


def test_what_is_put_behind_a_delivery_that_is_just_ending_is_not_left_behind(
    server: Server, own: Settings, own_db: Database, engine: Engine
) -> None:
    """The settle has looked for followers and not committed; the fan-out must wait for it, or see its end."""
    put_endpoint(engine)
    put_events(engine, 1, users=1)
    fan_out_all(own_db)
    claimed = claim(own_db, "a-token", 16, 2)
    put_events(engine, 1, users=1)
    connection = own_db.transact(connection_id)
    rivals: list[Future[int]] = []
    with ThreadPoolExecutor(1) as threads:

        def fan_out_meanwhile() -> None:
            rivals.append(threads.submit(own_db.transact, fan_out))
            with suppress(AssertionError):  # what became of it shows below
                wait_until_it_waits(server, connection, rivals[0])

        with before_its_commit(own, fan_out_meanwhile) as db:
            assert db.transact(settle, [settlement(one, DELIVERED) for one in claimed]) == frozenset()
        assert rivals[0].result() == 1
    assert read(engine, STATES) == ["delivered", "pending"]


def test_what_waits_for_nobody_all_the_same_is_found(own_db: Database, engine: Engine) -> None:
    """As a hand in the table would leave it."""
    for _ in range(2):
        put_endpoint(engine)
    put_events(engine, 6, users=2)
    fan_out_all(own_db)
    run(engine, "DELETE FROM webhook_deliveries WHERE state = 'pending' AND user_id = 2")
    place = Place()
    for _ in range(5):
        place = promote_stragglers(own_db, place)
    assert place == Place()
    heads = (
        "SELECT endpoint_id, user_id, event_id FROM webhook_deliveries WHERE state = 'pending' ORDER BY 1, 2"
    )
    assert read(engine, heads) == [(1, 1, 1), (1, 2, 4), (2, 1, 1), (2, 2, 4)]


def erase(db: Database, user: int) -> None:
    while db.transact(erase_some, user):
        pass
    db.transact(erase_rest, ORIGIN, user)


def test_of_an_erased_user_the_erasure_is_told_and_nothing_else(own_db: Database, engine: Engine) -> None:
    put_endpoint(engine)
    own_db.transact(register, 1, "a")
    own_db.transact(register, 1, "b")
    own_db.transact(register, 2, "c")
    fan_out_all(own_db)
    own_db.transact(revoke, 1, "a")  # is still in the outbox
    erase(own_db, 1)
    fan_out_all(own_db)
    told = "SELECT user_id, type, state FROM webhook_deliveries ORDER BY id"
    assert read(engine, told) == [(2, "device.registered", "pending"), (1, "user.erased", "pending")]


@pytest.mark.parametrize("attempt", [DELIVERED, FAILED], ids=["delivered", "failed"])
def test_what_is_under_way_when_its_user_is_erased_goes_when_it_ends_and_then_the_erasure_is_told(
    own_db: Database, engine: Engine, attempt: Attempt
) -> None:
    put_endpoint(engine)
    own_db.transact(register, 1, "a")
    fan_out_all(own_db)
    claimed = claim(own_db, "a-token", 16, 2)
    erase(own_db, 1)
    fan_out_all(own_db)
    told = "SELECT type, state FROM webhook_deliveries ORDER BY id"
    assert read(engine, told) == [("device.registered", "claimed"), ("user.erased", "waiting")]
    assert own_db.transact(settle, [settlement(one, attempt) for one in claimed]) == frozenset()
    assert read(engine, told) == [("user.erased", "pending")]


def test_what_has_ended_is_forgotten_after_30_days(own_db: Database, engine: Engine) -> None:
    endpoint = put_endpoint(engine, deleted_at="2026-11-30 00:00:00")
    ended = {"state": "delivered", "head_user_id": None, "due_at": None, "attempts": 1}
    for days in (29, 31):
        ended_at = read(engine, f"SELECT UTC_TIMESTAMP(6) - INTERVAL {days} DAY")[0]
        put_delivery(engine, endpoint, days, ended_at=ended_at, **ended)
    assert forget_ended(own_db) == 1
    assert read(engine, "SELECT user_id FROM webhook_deliveries") == [29]
    run(engine, "UPDATE webhook_deliveries SET ended_at = UTC_TIMESTAMP(6) - INTERVAL 31 DAY")
    assert forget_ended(own_db) == 2  # and the endpoint, to which nothing refers any more
    assert read(engine, "SELECT id FROM webhook_endpoints") == []


def test_the_oldest_undelivered_is_in_the_outbox_or_open_at_an_endpoint_that_is_served(
    own_db: Database, engine: Engine
) -> None:
    assert own_db.transact(oldest_undelivered) is None
    put_events(engine, 1)
    assert [own_db.transact(oldest_undelivered)] == read(engine, "SELECT occurred_at FROM events")
    fan_out_all(own_db)
    assert own_db.transact(oldest_undelivered) is None
    disabled = put_endpoint(engine, disabled_at="2026-11-30 00:00:00", disabled_because="asked")
    served = put_endpoint(engine)
    put_delivery(engine, disabled, 1, created_at="2020-01-01 00:00:00")
    put_delivery(engine, served, 1, created_at="2021-01-01 00:00:00", state="retrying", attempts=1)
    oldest = own_db.transact(oldest_undelivered)
    assert oldest is not None
    assert oldest.year == 2021
