"""The log: one line for each call, in one form for all that write, and nobody waits for it."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pymysql
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from app import logs
from app.db import Database, Tx
from app.logs import WaitingLines
from app.metrics import LOG_LINES_DROPPED
from app.quotas.queries import lock_user
from loadtest.ports import LOOPBACK, free_port
from tests.callers import by_many, one_by_one, register, statuses
from tests.ops.conftest import Log
from tests.processes import started
from tests.proxy import Fate, proxied
from tests.scraping import scrape
from tests.services import POLL_SECONDS, ROOT_KEY, START_SECONDS, Service, running_service
from tests.use_cases import register as registering

NewUser = Callable[[], int]
ROUTE = "/v1/users/{user_id}/devices"


def test_a_call_has_one_line_that_tells_it_all(api: httpx.Client, new_user: NewUser, log: Log) -> None:
    path, name = f"/v1/users/{new_user()}/devices", {"X-Request-ID": "of-the-log"}
    assert api.post(path, json={}, headers=name).status_code == 201
    line = log.wait_for(request_id="of-the-log")
    assert set(line) == {
        *("event", "level", "logger", "timestamp", "request_id", "method", "route", "status", "code"),
        *("client", "actor", "seconds", "lock_wait_seconds", "attempts"),
    }
    assert line["event"] == "Answered"
    assert line["level"] == "info"
    assert (line["method"], line["route"], line["status"], line["code"]) == ("POST", ROUTE, 201, "none")
    assert (line["client"], line["actor"], line["attempts"]) == (LOOPBACK, "root_key", 1)
    assert 0 < line["lock_wait_seconds"] < line["seconds"]
    assert len(log.lines(request_id="of-the-log")) == 1


def test_a_refusal_has_its_code_and_a_stranger_no_name(
    service: Service, api: httpx.Client, new_user: NewUser, log: Log
) -> None:
    path = f"/v1/users/{new_user()}/devices"
    for _ in range(3):
        answer = api.post(path, json={})
    assert log.wait_for(request_id=answer.headers["X-Request-ID"])["code"] == "device_limit_reached"
    stranger = httpx.get(f"{service.url}{path}", headers={"Authorization": "Bearer a key of nobody's"})
    line = log.wait_for(request_id=stranger.headers["X-Request-ID"])
    assert (line["status"], line["code"], "actor" in line) == (401, "unauthenticated", False)


def test_neither_a_key_nor_a_path_nor_a_body_is_logged(
    service: Service, api: httpx.Client, new_user: NewUser, log: Log
) -> None:
    user = new_user()
    path = f"/v1/users/{user}/devices"
    httpx.post(f"{service.url}{path}", headers={"Authorization": "Bearer the-key-of-a-stranger"})
    key = {"Idempotency-Key": "the-key-of-idempotency"}
    api.post(path, json={"name": "the name of a device"}, headers=key)
    api.delete(f"{path}?reason=the-reason")
    api.get(f"{path}/the-id-of-a-device", headers={"X-Request-ID": "the-last-one"})
    log.wait_for(request_id="the-last-one")
    for secret in (ROOT_KEY, "the-key-of", "the name of", "the-reason", "the-id-of", str(user)):
        assert secret not in log.text()


def test_what_is_asked_every_few_seconds_is_told_only_on_demand(
    service: Service, database_url: str, folder: Path, log: Log
) -> None:
    quiet = ("/livez", "/readyz", "/metrics")
    for path in quiet:
        httpx.get(f"{service.url}{path}")
    httpx.get(f"{service.url}/docs")
    log.wait_for(route="/docs")
    assert [line["route"] for line in log.lines(event="Answered")] == ["/docs"]
    with running_service(database_url, folder, log_level="debug") as own:
        own_log = Log(own)
        for path in quiet:
            httpx.get(f"{own.url}{path}")
            assert own_log.wait_for(route=path)["level"] == "debug"


def test_warning_is_the_level_of_whoever_wants_failed_calls_alone(
    database_url: str, new_user: NewUser, folder: Path
) -> None:
    with (
        proxied(database_url) as (proxy, url),
        (folder / "log").open("wb") as file,
        serving_into(file.fileno(), url, CUPO_LOG_LEVEL="warning", CUPO_LOCK_BUDGET_SECONDS="2") as service,
    ):
        log = Log(replace(service, log=folder / "log"))
        one_by_one(service, [register(new_user(), "a")])
        proxy.fate = lambda sql: Fate.CUT_BEFORE if "FOR UPDATE" in sql else Fate.PASS
        assert statuses(one_by_one(service, [register(new_user(), "a")])) == {503: 1}
        line = log.wait_for(event="Answered")
        assert (line["status"], line["code"], line["level"]) == (503, "database_unavailable", "warning")
        assert line["errno"] == 2013
        assert len(log.lines(event="Answered")) == 1


def test_uvicorn_logs_in_the_same_form(service: Service) -> None:
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    (running,) = (line for line in lines if "Uvicorn running on" in line["event"])
    assert (running["logger"], running["level"]) == ("uvicorn.error", "info")
    assert "color_message" not in running


@pytest.mark.parametrize(
    ("level", "told"),
    [
        ("debug", [(1, "warning"), (2, "debug"), (3, "info")]),
        # A database that is away fails each run until it is back, up to thirty times in a call.
        ("info", [(1, "warning"), (3, "info")]),
    ],
)
def test_each_run_that_failed_is_told_with_the_errors_number(
    database_url: str, new_user: NewUser, folder: Path, level: str, told: list[tuple[int, str]]
) -> None:
    with proxied(database_url) as (proxy, url), running_service(url, folder, log_level=level) as service:
        log = Log(service)
        one_by_one(service, [register(new_user(), "a")])
        fates = iter([Fate.CUT_BEFORE, Fate.CUT_BEFORE])
        proxy.fate = lambda sql: next(fates, Fate.PASS) if "FOR UPDATE" in sql else Fate.PASS
        (answer,) = one_by_one(service, [register(new_user(), "a")])
        assert answer.status_code == 201
        line = log.wait_for(event="Answered", request_id=answer.headers["X-Request-ID"])
        assert (line["attempts"], line["errno"]) == (3, 2013)
        runs = log.lines(logger="app.db", request_id=answer.headers["X-Request-ID"])
        assert [(run["attempts"], run["level"]) for run in runs] == told
        assert {run["errno"] for run in runs} == {2013}


SCRIPT = """
import logging, logging.config, warnings
from app.logs import configuration
from app.settings import load_settings
logging.config.dictConfig(configuration(load_settings()))
warnings.warn("of Python", stacklevel=1)
log = logging.getLogger("app.something")
log.warning("%d words, and one too many", 5, 6)
try:
    raise ValueError("the cause")
except ValueError:
    log.exception("It failed", extra={"fact": "Ümläut"})
"""


def lines_of_a_script(**settings: str) -> str:
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", SCRIPT],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == ""
    return ended.stderr


def test_warnings_and_tracebacks_are_one_line_each_and_a_bad_line_costs_no_other() -> None:
    warning, failure = map(json.loads, lines_of_a_script().splitlines())
    assert (warning["logger"], warning["level"]) == ("py.warnings", "warning")
    assert "of Python" in warning["event"]
    assert (failure["event"], failure["fact"], failure["level"]) == ("It failed", "Ümläut", "error")
    assert failure["exception"].startswith("Traceback")
    assert "ValueError: the cause" in failure["exception"]


def test_console_is_for_the_eye() -> None:
    said = lines_of_a_script(CUPO_LOG_FORMAT="console")
    assert "It failed" in said
    assert "fact" in said
    assert not any(line.startswith("{") for line in said.splitlines())


class Looking(logging.Handler):
    """Notes of each line whether a rival could have had the user's lock when it was made."""

    def __init__(self, auditor: Engine, user: int) -> None:
        super().__init__()
        self._auditor = auditor
        self._user = user
        self.found_free: list[bool] = []

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - logging's signature
        query = "SELECT user_id FROM device_registration_locks WHERE user_id = :user FOR UPDATE"
        with self._auditor.connect() as connection:
            connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
            try:
                self.found_free.append(len(connection.execute(text(query), {"user": self._user}).all()) == 1)
            except OperationalError:
                self.found_free.append(False)


@pytest.mark.locking
def test_no_line_is_made_while_a_lock_is_held(
    db: Database, new_user: NewUser, auditor: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even of a transaction that fails while it has the lock, and then cannot give it back."""
    user = new_user()
    db.transact(registering, user, "a")
    failures = iter([OperationalError("INSERT", {}, pymysql.OperationalError(1213, "deadlock"))])

    def fail_once(tx: Tx) -> str:
        lock_user(tx, user)
        failure = next(failures, None)
        if failure is not None:
            monkeypatch.setattr(Connection, "rollback", fail_to_roll_back)
            raise failure
        monkeypatch.undo()
        return "done"

    def fail_to_roll_back(_: Connection) -> None:
        raise OperationalError("ROLLBACK", {}, pymysql.OperationalError(1213, "on Galera"))

    looking = Looking(auditor, user)
    logger = logging.getLogger("app.db")
    logger.addHandler(looking)
    try:
        assert db.transact(fail_once) == "done"
    finally:
        logger.removeHandler(looking)
    assert looking.found_free == [True, True]


@contextmanager
def serving_into(descriptor: int, database_url: str, **settings: str) -> Iterator[Service]:
    """The service with standard error going elsewhere."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    environment |= {"CUPO_DATABASE_URL": database_url, "CUPO_ROOT_KEY": ROOT_KEY} | settings
    command = [sys.executable, "-m", "app", "serve", "--port", str(port)]
    with started(command, env=environment, stdout=subprocess.DEVNULL, stderr=descriptor) as process:
        service = Service(f"http://{LOOPBACK}:{port}", process, Path(os.devnull))
        give_up_at = time.monotonic() + START_SECONDS
        while not is_alive(service):
            assert process.poll() is None
            assert time.monotonic() < give_up_at
            time.sleep(POLL_SECONDS)
        yield service


def is_alive(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/livez", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for end in (read, write):
        with suppress(OSError):
            os.close(end)


def test_a_log_that_nobody_reads_stops_no_call_and_no_end(
    database_url: str, new_user: NewUser, pipe: tuple[int, int]
) -> None:
    _, write = pipe
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with serving_into(write, database_url) as service:
        calls = [register(new_user(), "a") for _ in range(100)]  # some 35 kB of lines
        assert statuses(by_many(service, calls, callers=5)) == {201: 100}
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(15) == 0


def test_a_log_that_was_closed_fails_no_call(
    database_url: str, new_user: NewUser, pipe: tuple[int, int]
) -> None:
    read, write = pipe
    with serving_into(write, database_url) as service:
        os.close(read)
        assert statuses(one_by_one(service, [register(new_user(), "a") for _ in range(5)])) == {201: 5}
        assert scrape(service.url).value("cupo_log_lines_dropped_total") >= 1


def test_lines_beyond_those_that_may_wait_are_dropped_and_counted(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = pipe
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    monkeypatch.setattr(logs, "STANDARD_ERROR", write)
    monkeypatch.setattr(logs, "MOST_LINES_WAITING", 10)
    raise_exceptions = logging.raiseExceptions
    lines = WaitingLines(as_json=True)
    dropped = counted_drops()
    logger = logging.Logger("of the test")
    logger.addHandler(lines)
    began = time.monotonic()
    for _ in range(200):
        logger.error("x" * 100)
    assert time.monotonic() - began < 1
    assert 100 < counted_drops() - dropped < 200
    os.close(read)  # what is in its way, so that the thread ends
    lines.close()
    logging.raiseExceptions = raise_exceptions
    logging.captureWarnings(capture=False)


def counted_drops() -> float:
    (family,) = LOG_LINES_DROPPED.collect()
    return family.samples[0].value
