"""What is a secret, or was put where a secret might be, is in no log and in no problem document."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert
from sqlalchemy.engine import make_url

from app.db import Database, Tx
from app.errors import Contention
from app.settings import Settings
from app.tables import device_registration_locks as locks
from tests import raw
from tests.processes import started
from tests.proxy import Fate, proxied
from tests.services import ROOT_KEY, Service, running_service
from tests.single_calls import NewUser

SECRET = "s3cr3t-marker.4f1c"
MARK = SECRET.encode()
JSON = b"Content-Type: application/json"
HEADERS = (
    "Authorization",
    "Cookie",
    "User-Agent",
    "Referer",
    "Origin",
    "X-Api-Key",
    "X-Forwarded-For",
    "Forwarded",
    "Idempotency-Key",
    "If-Match",
    "Content-Type",
    "Accept",
    "Expect",
    "traceparent",
    SECRET,
)


@pytest.fixture(scope="module")
def verbose(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """All that can be logged is, the line for each call too."""
    with running_service(
        database_url,
        tmp_path_factory.mktemp("verbose"),
        command=("tests.hostile.verbose", "serve"),
        log_level="debug",
        trusted_proxies="10.0.0.0/8",
        cors_origins="https://app.example",
        head_timeout_seconds=0.3,
    ) as running:
        yield running


def requests_with_the_secret(user: int) -> Iterator[tuple[int, bytes]]:
    """Each with the status that it must have: what is meant to fail must fail there, and not before."""
    path = f"/v1/users/{user}/devices"
    fields = ("device_id", "name", "model", "os_version", "app_version")
    for number, field in enumerate(fields):
        body = f'{{"{field}": "{SECRET}", "on_limit": "evict_oldest"}}'.encode()
        yield 201, raw.request("POST", path, JSON, body=body)
        long = f'{{"{field}": "{SECRET}{"x" * 200}"}}'.encode()
        yield 422, raw.request("POST", path, JSON, b"Idempotency-Key: %d" % number, body=long)
    for text, status in (
        (f'{{"metadata": {{"{SECRET}": "{SECRET}"}}, "on_limit": "evict_oldest"}}', 201),
        (f'{{"platform": "{SECRET}"}}', 422),
        (f'{{"lease_seconds": "{SECRET}"}}', 422),
        (f'{{"replace_device_id": "{SECRET}-none"}}', 404),
        (f'{{"name": "{SECRET}', 400),
        (f'{SECRET}: "{SECRET}"', 400),
        (f'["{SECRET}"]', 422),
    ):
        yield status, raw.request("POST", path, JSON, body=text.encode())
    yield 415, raw.request("POST", path, b"Content-Type: text/plain", body=MARK)
    yield (
        200,
        raw.request("PUT", f"/v1/users/{user}/quota", JSON, body=b'{"limit": 1, "reason": "%s"}' % MARK),
    )
    yield 422, raw.request("PUT", f"/v1/users/{user}/quota", JSON, body=b'{"limit": "%s"}' % MARK)
    yield 409, raw.request("POST", path, JSON, body=b'{"device_id": "%s-2"}' % MARK)
    yield 500, raw.request("GET", f"{path}/{SECRET}")
    yield 404, raw.request("DELETE", f"{path}/{SECRET}-none")
    yield 422, raw.request("GET", f"/v1/users/{SECRET}/devices")
    yield 404, raw.request("GET", f"/{SECRET}")
    yield 404, raw.request("GET", f"/problems/{SECRET}")
    yield 404, raw.request("GET", f"/docs/assets/{SECRET}")
    yield 405, raw.request("PUT", f"{path}/{SECRET}")
    yield 422, raw.request("GET", f"{path}?{SECRET}={SECRET}&access_token={SECRET}")
    yield 422, raw.request("GET", f"{path}?cursor={SECRET}")
    yield 422, raw.request("GET", f"{path}?limit={SECRET}")
    yield 200, raw.request("DELETE", f"{path}?reason={SECRET}")
    for name in HEADERS:
        header = f"{name}: {SECRET}".encode()
        status = {"If-Match": 422, "Content-Type": 200}.get(name, 200)
        yield (
            (401 if name == "Authorization" else status),
            raw.request(
                "DELETE" if name == "If-Match" else "GET",
                f"{path}/x" if name == "If-Match" else path,
                header,
                key=None if name == "Authorization" else ROOT_KEY,
            ),
        )
    for credentials in (
        f"Bearer {SECRET}",
        f"Bearer cupo_{SECRET}",
        f"Bearer e30.{SECRET}.x",
        f"Basic {SECRET}",
    ):
        yield 401, raw.request("GET", path, f"Authorization: {credentials}".encode(), key=None)
    yield 431, raw.request("GET", f"{path}?{SECRET}", b"X-None: " + MARK * 2000)
    yield 400, raw.request("GET", f"{path}?{SECRET}", b"X-None : " + MARK)
    yield 405, raw.request(SECRET, path)
    yield 400, MARK + b"\r\n\r\n"
    yield 408, raw.request("GET", path, b"X-None: " + MARK)[:-2]


def test_no_log_and_no_problem_holds_what_was_sent_as_a_value(verbose: Service, new_user: NewUser) -> None:
    user = new_user()
    for status, request in requests_with_the_secret(user):
        answer = raw.send(verbose, request)
        assert answer.status == status, (request[:200], answer)
        line, _, rest = request.partition(b"\r\n")
        # An address that is told back, and names of fields, were written by who reads the answer.
        if status >= 400 and MARK not in line and b'"%s' % MARK not in rest:
            assert MARK not in answer.body, (request[:200], answer)
    log = verbose.logged()
    assert "SELEC" in log, "the fault was logged, with its statement"
    assert log.count('"/v1/users/{user_id}/devices"') > 40, "each call has its line"
    assert_clean(log, SECRET, ROOT_KEY)


def assert_clean(log: str, *secrets: str) -> None:
    for line in log.splitlines():
        assert not any(secret in line for secret in secrets), line


def test_a_database_that_is_away_leaves_no_secret_in_the_log(
    database_url: str, folder: Path, new_user: NewUser
) -> None:
    password = make_url(database_url).password
    assert password
    with (
        proxied(database_url) as (proxy, url),
        running_service(
            url,
            folder,
            lock_budget_seconds=2,
            database_pool_wait_seconds=1,
        ) as service,
    ):
        proxy.fate = lambda _statement: Fate.CUT_BEFORE
        body = b'{"device_id": "%s", "name": "%s"}' % (MARK, MARK)
        path = f"/v1/users/{new_user()}/devices"
        assert raw.send(service, raw.request("POST", path, JSON, body=body)).status == 503
        proxy.close()
        assert raw.send(service, raw.request("POST", path, JSON, body=body)).status == 503
        assert raw.send(service, raw.request("GET", "/readyz")).status == 503
    log = service.log.read_text()
    assert "Gave up" in log
    assert_clean(log, SECRET, ROOT_KEY, password)


def test_the_servers_own_words_on_a_duplicate_show_no_values(
    settings: Settings, new_user: NewUser, caplog: pytest.LogCaptureFixture
) -> None:
    user = new_user()
    db = Database(settings.model_copy(update={"contention_retries": 0}))

    def insert_twice(tx: Tx) -> None:
        for _ in range(2):
            tx.execute(insert(locks).values(user_id=user, version=0, created_at="2026-01-01"))

    with pytest.raises(Contention):
        db.transact(insert_twice)
    db.close()
    assert "Duplicate entry '…'" in caplog.text
    assert str(user) not in caplog.text


@pytest.mark.parametrize("command", ["doctor", "doctor --json", "migrate", "worker"])
def test_no_command_shows_a_password_or_the_root_key(database_url: str, folder: Path, command: str) -> None:
    url = make_url(database_url).set(password=SECRET)
    environment = {
        "CUPO_DATABASE_URL": url.render_as_string(hide_password=False),
        "CUPO_ROOT_KEY": f"{SECRET}-the-root-key",
    }
    words = [sys.executable, "-m", "app", *command.split()]
    with started(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        said = process.stdout.readline()
        if command == "worker":  # it begins, is refused, and goes on
            said += process.stdout.readline()
            assert "Access denied" in said
            process.terminate()
        said += process.stdout.read()
    assert said
    assert SECRET not in said
