"""How each contestant is made and started. One that is not being measured does not run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.database import PEER, cupo_environment
from bench.errors import NotRun
from loadtest.ports import LOOPBACK, free_port
from tests.processes import started

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.scenarios import Contestant, Database, Program
    from tests.servers import Server

PEERS = Path(__file__).parent / "peers"
BUILD_SECONDS = 300
START_SECONDS = 60
POLL_SECONDS = 0.05
HAS_STARTED = b"Application startup complete"  # uvicorn's words, once for each process
POOL = "32"


@dataclass
class Scene:
    """What is there for all runs: server, folder, keys of Cupo's databases, programs that were built."""

    server: Server
    folder: Path
    tokens: Mapping[Database, str] = field(default_factory=dict)
    programs: dict[Program, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Serving:
    """A running contestant: the leader of a session that has all its processes."""

    url: str
    session: int
    log: Path
    token: str | None


def build(scene: Scene, program: Program) -> None:
    """Raises NotRun where a compiler or a library is missing."""
    if program == "go":
        go = _found("go", "the packages golang-go and golang-github-go-sql-driver-mysql-dev")
        # Debian's packages, so that nothing is fetched.
        settings = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}
        words = [go, "build", "-o", str(scene.folder / "go_lock_row"), str(PEERS / "go_lock_row.go")]
        scene.programs[program] = _build(words, scene.folder / "go_lock_row", settings)
    elif program == "c":
        gcc = _found("gcc", "the package gcc")
        config = _found("mariadb_config", "the package libmariadb-dev")
        flags = subprocess.check_output([config, "--cflags", "--libs"], text=True).split()  # noqa: S603 - ours
        made = scene.folder / "raw_limit"
        words = [gcc, "-O2", "-o", str(made), str(PEERS / "raw_limit.c"), *flags, "-lpthread"]
        scene.programs[program] = _build(words, made, {})


def _found(program: str, packages: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise NotRun(f"no {program} here: install {packages}")
    return found


def _build(words: Sequence[str], made: Path, settings: Mapping[str, str]) -> Path:
    ended = subprocess.run(  # noqa: S603 - our own commands
        words,
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if ended.returncode:
        raise NotRun(f"{words[0]} could not build it: {ended.stdout.strip()}")
    return made


@contextmanager
def serving(scene: Scene, contestant: Contestant, limit: int) -> Iterator[Serving]:
    """The contestant's HTTP service on a free port, ready, until the `with` ends. Raises NotRun."""
    port = free_port()
    words, environment = _command(scene, contestant, limit, port)
    log = scene.folder / f"{contestant.name}.log"
    with (
        log.open("wb") as output,
        started(
            words,
            env=environment,
            cwd=PEERS.parent.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        _wait_until_ready(process, port, log, 0 if contestant.program == "go" else contestant.workers)
        url = f"http://{LOOPBACK}:{port}"
        yield Serving(url, process.pid, log, scene.tokens.get(contestant.database))


def _command(
    scene: Scene, contestant: Contestant, limit: int, port: int
) -> tuple[Sequence[str], Mapping[str, str]]:
    server, settings = scene.server, dict(contestant.settings)
    if contestant.program == "cupo":
        words = [
            sys.executable,
            "-m",
            "app",
            "serve",
            "--port",
            str(port),
            "--workers",
            str(contestant.workers),
        ]
        environment = cupo_environment(server, contestant.database)
        return words, environment | {"CUPO_DEFAULT_DEVICE_LIMIT": str(limit)} | settings
    of_all = os.environ | {"LIMIT": str(limit)} | settings
    if contestant.program == "go":
        dsn = f"app:app@tcp({LOOPBACK}:{server.port})/{PEER}{contestant.parameters}"
        return [str(scene.programs["go"])], of_all | {
            "DSN": dsn,
            "ADDR": f"{LOOPBACK}:{port}",
            "POOL": POOL,
        }
    dsn = f"mysql+pymysql://app:app@{LOOPBACK}:{server.port}/{PEER}{contestant.parameters}"
    application = ("--app-dir", str(PEERS), "naive_fastapi:app", "--no-access-log")
    return [sys.executable, "-m", "uvicorn", *application, "--port", str(port)], of_all | {"DSN": dsn}


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path, processes: int) -> None:
    """The port alone does not tell: it is open before the first worker, and the other may be slower."""
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        if log.read_bytes().count(HAS_STARTED) >= processes and _listens(port):
            return
        time.sleep(POLL_SECONDS)
    words = log.read_text(errors="replace").strip().splitlines()
    raise NotRun(f"it did not start: {words[-1] if words else 'it said nothing'}")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
