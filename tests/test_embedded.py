"""The embedded default, as a newcomer meets it: an empty folder, no settings, SQLite."""

import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from app.engines import make_engine
from app.migrations import migrate
from app.settings import load_settings
from loadtest.ports import free_port
from tests.callers import at_once, register, statuses
from tests.processes import started
from tests.services import POLL_SECONDS, ROOT_KEY, Service

PATIENCE_SECONDS = 40
SERVE = ("-m", "app", "serve", "--port")
UVICORN = ("-m", "uvicorn", "app.main:app", "--port")


@dataclass(frozen=True)
class Embedded:
    """A service on SQLite in `folder`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def key(self) -> str:
        return (self.folder / "var" / "root_key").read_text().strip()

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=PATIENCE_SECONDS,
        )

    def database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "var" / "cupo.db")

    def output(self) -> str:
        return (self.folder / "log").read_text()


@contextmanager
def embedded(folder: Path, *command: str, **settings: str) -> Iterator[Embedded]:
    """Ended by SIGTERM if it still runs at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    port = free_port()
    before, after = (command[: command.index("--port") + 1], command[command.index("--port") + 1 :])
    with (
        (folder / "log").open("w") as log,
        started(
            [sys.executable, *before, str(port), *after],
            cwd=folder,
            env=environment | settings,
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        service = Embedded(folder, port, process)
        _wait_until_alive(service)
        yield service


def _wait_until_alive(service: Embedded) -> None:
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        assert service.process.poll() is None, service.output()
        try:
            httpx.get(f"http://127.0.0.1:{service.port}/readyz", timeout=5)
        except httpx.TransportError:
            threading.Event().wait(POLL_SECONDS)
        else:
            return
    raise AssertionError(service.output())


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """`cupo serve` with nothing set, in a folder that was empty."""
    with embedded(tmp_path_factory.mktemp("newcomer"), *SERVE) as service:
        yield service


def test_serve_prints_where_it_is_its_key_and_a_curl_line_that_works_when_pasted(newcomer: Embedded) -> None:
    said = newcomer.output()
    assert f"http://127.0.0.1:{newcomer.port}/docs" in said
    assert re.search(rf"^Root key +{re.escape(newcomer.key)}$", said, re.MULTILINE)
    (line,) = re.findall(r"^ +(curl .*)$", said, re.MULTILINE)
    for status in ("201 Created", "200 OK"):
        pasted = subprocess.run(  # noqa: S603 - what we tell newcomers to run
            ["/bin/sh", "-c", f"{line} --silent"], capture_output=True, text=True, check=True
        )
        assert pasted.stdout.startswith(f"HTTP/1.1 {status}")
    with newcomer.client() as client:
        listed = client.get("/v1/users/42/devices").json()
        assert [device["device_id"] for device in listed["items"]] == ["phone-1"]
        assert client.get("/readyz").status_code == 200


def test_everything_lies_in_var_and_the_key_is_for_its_owner_only(newcomer: Embedded) -> None:
    assert {path.name for path in newcomer.folder.iterdir()} == {"log", "var"}
    assert stat.S_IMODE((newcomer.folder / "var" / "root_key").stat().st_mode) == 0o600
    with newcomer.client() as client, closing(newcomer.database()) as database:
        assert client.post("/v1/users/1/devices", json={"device_id": "a"}).status_code == 201
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("SELECT device_id FROM devices WHERE user_id = 1").fetchall() == [("a",)]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_database_is_for_its_owner_only(newcomer: Embedded) -> None:
    folder = newcomer.folder / "var"
    assert mode_of(folder) == 0o700
    files = [folder / name for name in ("cupo.db", "cupo.db-wal", "cupo.db-shm")]
    assert [mode_of(file) for file in files] == [0o600] * 3


def test_a_database_that_others_could_read_is_closed_to_them(folder: Path) -> None:
    place = folder / "var"
    place.mkdir(0o755)
    file = place / "cupo.db"
    settings = load_settings(database_url=f"sqlite:///{file}", root_key=ROOT_KEY)
    migrate(settings)
    file.chmod(0o644)
    engine = make_engine(settings, pool_size=1)
    with engine.connect():
        assert mode_of(file) == 0o600
    engine.dispose()
    assert mode_of(place) == 0o755, "a folder that was there is its owner's matter"


def test_a_file_system_without_modes_is_no_obstacle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("app.embedded.os.open", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    settings = load_settings(database_url=f"sqlite:///{folder}/cupo.db", root_key=ROOT_KEY)
    migrate(settings)
    assert (folder / "cupo.db").exists()


def test_the_largest_user_ids_are_kept_apart_on_sqlite(newcomer: Embedded) -> None:
    with newcomer.client() as client:
        for user in (2**63 - 1, 2**63, 2**64 - 1):
            assert client.post(f"/v1/users/{user}/devices", json={"name": "👪"}).status_code == 201
            (device,) = client.get(f"/v1/users/{user}/devices").json()["items"]
            assert (device["user_id"], device["name"]) == (str(user), "👪")


@pytest.fixture(scope="module")
def four_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """With a key of its owner's choice."""
    folder = tmp_path_factory.mktemp("four-workers")
    with embedded(folder, *SERVE, "--workers", "4", CUPO_ROOT_KEY=ROOT_KEY) as service:
        yield service


def test_four_workers_on_sqlite_give_50_calls_at_once_exactly_the_limit(four_workers: Embedded) -> None:
    service = Service(
        f"http://127.0.0.1:{four_workers.port}", four_workers.process, four_workers.folder / "log"
    )
    answers = at_once(service, [register(7, f"device-{one}") for one in range(50)])
    assert statuses(answers) == {201: 3, 409: 47}
    with closing(four_workers.database()) as database:
        assert database.execute("SELECT COUNT(*) FROM devices WHERE user_id = 7").fetchone() == (3,)
    assert "Traceback" not in four_workers.output()


def test_a_key_that_is_set_is_neither_printed_nor_kept(four_workers: Embedded) -> None:
    assert ROOT_KEY not in four_workers.output()
    assert '"Authorization: Bearer $CUPO_ROOT_KEY"' in four_workers.output()
    assert not (four_workers.folder / "var" / "root_key").exists()


@pytest.mark.parametrize(("command", "how"), [(SERVE, signal.SIGINT), (UVICORN, signal.SIGTERM)])
def test_a_signal_ends_it_once_the_calls_in_flight_are_answered(
    folder: Path, command: tuple[str, ...], how: signal.Signals
) -> None:
    with embedded(folder, *command) as service:
        body = b'{"device_id": "in-flight"}'
        head = (
            f"POST /v1/users/9/devices HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {service.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", service.port), PATIENCE_SECONDS) as connection:
            connection.sendall(head.encode())
            # The service asks for the body: the call is in flight.
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")
            service.process.send_signal(how)
            _wait_until_refused(service.port)
            connection.sendall(body)
            assert connection.recv(1000).startswith(b"HTTP/1.1 201")
        service.process.wait(PATIENCE_SECONDS)
        assert "Traceback" not in service.output()
        assert '"level": "error"' not in service.output()
    with closing(service.database()) as database:
        assert database.execute("SELECT device_id FROM devices").fetchall() == [("in-flight",)]


def _wait_until_refused(port: int) -> None:
    for _ in range(int(PATIENCE_SECONDS / POLL_SECONDS)):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return
        threading.Event().wait(POLL_SECONDS)
    raise AssertionError("it still takes calls")
