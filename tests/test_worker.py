"""The worker removes what has run out, and nothing else."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine, text

from app.db import Database, Tx
from app.devices.service import Registered
from app.idempotency.queries import Answer, keep_answer
from app.settings import Settings, load_settings
from app.worker import Swept, run_once, run_until
from tests.databases import migrated_database
from tests.proxy import Fate, proxied
from tests.servers import Server
from tests.services import ROOT_KEY
from tests.use_cases import register

pytestmark = pytest.mark.locking

LONG_AGO = "UTC_TIMESTAMP(6) - INTERVAL 2 DAY"


@pytest.fixture
def own(server: Server) -> Iterator[Settings]:
    """A database of its own: a pass of the worker is about all users."""
    with migrated_database(server, "cupo_test_worker") as url:
        yield load_settings(database_url=url, root_key=ROOT_KEY)


@pytest.fixture
def own_db(own: Settings) -> Iterator[Database]:
    database = Database(own)
    yield database
    database.close()


@pytest.fixture
def engine(own: Settings) -> Iterator[Engine]:
    made = create_engine(own.url, isolation_level="AUTOCOMMIT")
    yield made
    made.dispose()


def column(engine: Engine, query: str) -> list[object]:
    with engine.connect() as connection:
        return list(connection.execute(text(query)).scalars())


def register_leased(tx: Tx, user_id: int, device_id: str) -> Registered:
    return register(tx, user_id, device_id, lease_seconds=60)


def end_leases(engine: Engine, where: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(f"UPDATE devices SET expires_at = {LONG_AGO} WHERE {where}"))  # noqa: S608 - our own words


def fill(engine: Engine, users: int, devices: int) -> None:
    """Devices that expired long ago, straight into the table."""
    with engine.connect() as connection:
        connection.execute(
            text(
                "INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision,"  # noqa: S608
                " lease_seconds, expires_at)"
                f" VALUES (:user, :device, {LONG_AGO}, {LONG_AGO}, 1, 60, {LONG_AGO})"
            ),
            [
                {"user": user + 1, "device": f"device-{device}"}
                for user in range(users)
                for device in range(devices)
            ],
        )


def test_a_pass_removes_devices_past_their_lease_and_says_so_in_the_trail(
    own: Settings, own_db: Database, engine: Engine
) -> None:
    own_db.transact(register_leased, 1, "expired")
    own_db.transact(register_leased, 1, "alive")
    own_db.transact(register, 2, "no-lease")
    end_leases(engine, "device_id = 'expired'")
    assert run_once(own_db, own) == Swept(devices=1)
    assert column(engine, "SELECT device_id FROM devices ORDER BY 1") == ["alive", "no-lease"]
    query = "SELECT CONCAT(actor, ' ', device_id) FROM events WHERE type = 'device.expired'"
    assert column(engine, query) == ["worker expired"]
    assert run_once(own_db, own) == Swept()


def test_a_pass_removes_answers_past_their_time(own: Settings, own_db: Database, engine: Engine) -> None:
    for key in (b"o" * 32, b"n" * 32):
        own_db.transact(keep_answer, 1, key, b"r" * 32, Answer(201, {}, "{}"))
    with engine.connect() as connection:
        connection.execute(
            text(f"UPDATE idempotency_keys SET answered_at = {LONG_AGO} WHERE scope_digest = :old"),  # noqa: S608 - our own words
            {"old": b"o" * 32},
        )
    assert run_once(own_db, own) == Swept(answers=1)
    assert column(engine, "SELECT scope_digest FROM idempotency_keys") == [b"n" * 32]


def test_a_pass_is_bounded_and_passes_get_to_the_end(own: Settings, own_db: Database, engine: Engine) -> None:
    fill(engine, users=1, devices=1200)
    assert [run_once(own_db, own).devices for _ in range(4)] == [500, 500, 200, 0]


def test_two_workers_at_once_remove_each_device_once(own: Settings, engine: Engine) -> None:
    fill(engine, users=40, devices=10)
    both = [Database(own), Database(own)]
    ready = threading.Barrier(2)

    def sweep(db: Database) -> int:
        ready.wait(10)
        return run_once(db, own).devices

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(sweep, both)) == 400
    for db in both:
        db.close()
    assert column(engine, "SELECT COUNT(*) FROM events WHERE type = 'device.expired'") == [400]
    assert column(engine, "SELECT COUNT(*) FROM devices") == [0]


def test_a_database_that_is_gone_costs_a_pass_and_not_the_worker(own: Settings, engine: Engine) -> None:
    fill(engine, users=1, devices=1)
    stop = threading.Event()
    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        settings = load_settings(
            database_url=url, root_key=ROOT_KEY, lock_budget_seconds=2, sweep_interval_seconds=0.01
        )
        db = Database(settings)

        def stop_when_done(sql: str) -> Fate:
            if "idempotency_keys" in sql:
                stop.set()
            return Fate.PASS

        def come_back(record: logging.LogRecord) -> bool:
            said.append(record.getMessage())
            proxy.fate = stop_when_done
            return True

        said: list[str] = []
        proxy.fate = lambda _sql: Fate.CUT_BEFORE
        logger = logging.getLogger("app.worker")
        logger.addFilter(come_back)
        try:
            run_until(stop, db, settings)
        finally:
            logger.removeFilter(come_back)
        db.close()
    assert said[0].startswith("This pass is left out")
    assert column(engine, "SELECT COUNT(*) FROM devices") == [0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_by_a_signal_with_nothing_half_done(
    number: signal.Signals, own: Settings, engine: Engine
) -> None:
    fill(engine, users=1, devices=1)
    environment = os.environ | {
        "CUPO_DATABASE_URL": own.database_url.get_secret_value(),
        "CUPO_ROOT_KEY": ROOT_KEY,
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "app", "worker"], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert worker.stderr is not None
    for line in worker.stderr:
        if "Removed 1 devices" in line:
            break
    worker.send_signal(number)
    rest = worker.communicate(timeout=30)[1]
    assert worker.returncode == 0
    assert "Traceback" not in rest
    assert column(engine, "SELECT COUNT(*) FROM devices") == [0]


def test_what_a_heartbeat_saved_is_not_removed(
    own: Settings, own_db: Database, engine: Engine, new_user: Callable[[], int]
) -> None:
    """The worker has found the user; before it gets the lock, the lease starts anew."""
    user = new_user()
    own_db.transact(register_leased, user, "saved")
    end_leases(engine, "device_id = 'saved'")
    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        settings = load_settings(database_url=url, root_key=ROOT_KEY)
        db = Database(settings)

        def renew_before_the_lock(sql: str) -> Fate:
            if "device_registration_locks" in sql and "FOR UPDATE" in sql:
                with engine.connect() as connection:
                    connection.execute(
                        text("UPDATE devices SET expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 DAY")
                    )
            return Fate.PASS

        proxy.fate = renew_before_the_lock
        assert run_once(db, settings) == Swept()
        db.close()
    assert column(engine, "SELECT device_id FROM devices") == ["saved"]


def test_a_user_whose_lock_is_held_does_not_hold_up_the_others(own: Settings, engine: Engine) -> None:
    fill(engine, users=2, devices=1)
    settings = load_settings(
        database_url=own.database_url.get_secret_value(),
        root_key=ROOT_KEY,
        lock_budget_seconds=2,
        lock_wait_seconds=1,
    )
    db = Database(settings)
    db.transact(register, 1, "makes-the-lock-row")
    holder = create_engine(own.url)
    with holder.connect() as tx:
        query = "SELECT user_id FROM device_registration_locks WHERE user_id = 1 FOR UPDATE"
        assert tx.execute(text(query)).all()
        fill_again = "UPDATE devices SET lease_seconds = 60, expires_at = registered_at - INTERVAL 1 DAY"
        with engine.connect() as connection:
            connection.execute(text(fill_again))
        assert run_once(db, settings) == Swept(devices=1)
    holder.dispose()
    db.close()
    assert column(engine, "SELECT DISTINCT user_id FROM devices") == [1]
