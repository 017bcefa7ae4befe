"""Fixtures of the load test's own tests: the stand-in, the command, samples by hand."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtest.__main__ import app
from tests.processes import started
from tests.services import ROOT_KEY, Service, running_service

StartStandIn = Callable[..., AbstractContextManager["StandIn"]]
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class StandIn:
    service: Service
    database_url: str


@dataclass(frozen=True)
class Told:
    """What a run of the command said."""

    status: int
    out: str
    err: str


class Command:
    """The load test's command."""

    def __call__(self, *words: str, url: str = "", database_url: str = "") -> Told:
        """In this process; only the load's processes are its own."""
        told = CliRunner().invoke(
            app, [*words, *_target(url)], env={"CUPO_ROOT_KEY": ROOT_KEY, "CUPO_DATABASE_URL": database_url}
        )
        if told.exception and not isinstance(told.exception, SystemExit):
            raise told.exception
        return Told(told.exit_code, told.stdout, told.stderr)

    def start(
        self, *words: str, url: str = "", database_url: str = ""
    ) -> AbstractContextManager["subprocess.Popen[str]"]:
        """`python -m loadtest` in a process of its own."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
        environment |= {"CUPO_ROOT_KEY": ROOT_KEY, "CUPO_DATABASE_URL": database_url}
        return started(
            [sys.executable, "-m", "loadtest", *words, *_target(url)],
            env=environment | {"PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _target(url: str) -> list[str]:
    return ["--target", url] if url else []


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Command()


@pytest.fixture(scope="session")
def start_standin(tmp_path_factory: pytest.TempPathFactory) -> StartStandIn:
    @contextmanager
    def start(fault: str = "", limit: int = 2) -> Iterator[StandIn]:
        folder = tmp_path_factory.mktemp("standin")
        url = f"sqlite:///{folder}/standin.db"
        application = "tests.loadtest.standin:app"
        with running_service(
            url, folder, application=application, fault=fault, default_device_limit=limit
        ) as service:
            yield StandIn(service, url)

    return start


@pytest.fixture(scope="session")
def standin(start_standin: StartStandIn) -> Iterator[StandIn]:
    """Limit 2, no fault."""
    with start_standin() as running:
        yield running
