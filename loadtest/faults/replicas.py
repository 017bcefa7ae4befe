"""Replicas of the service, started as an operator starts them, and what is done to them."""

import dataclasses
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx

from loadtest.errors import BadUse
from loadtest.faults.clock import Clock, make_clock
from loadtest.installations import Process
from loadtest.ports import LOOPBACK, free_port

CUPO = (sys.executable, "-m", "app")
START_SECONDS = 60
POLL_SECONDS = 0.05
# The kernel ends a replica by SIGTERM should this process be killed.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")


@dataclasses.dataclass
class Replica:
    """`clock` is None where it goes by the machine's."""

    number: int
    port: int
    process: Process
    clock: Clock | None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Returns when it answers. Main thread only. Raises BadUse where it does not start.

        After a kill the port is free only once the workers have finished their calls and ended too.
        """
        give_up_at = time.monotonic() + START_SECONDS
        while self.workers():
            if time.monotonic() > give_up_at:
                raise BadUse(f"processes of replica {self.number} do not end: {self.workers()}")
            time.sleep(POLL_SECONDS)
        self.process.start()
        self.wait_until_alive()

    def wait_until_alive(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.pid is None or time.monotonic() > give_up_at:
                raise BadUse(f"a replica did not start:\n{self.process.last_words()}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """SIGTERM; returns when what was under way is finished. Raises BadUse where it does not end by it."""
        self.process.stop()
        if self.process.exit_status != 0:
            raise BadUse(
                f"replica {self.number} did not end in order, but with status {self.process.exit_status}:\n"
                f"{self.process.last_words()}"
            )

    def kill(self) -> None:
        """kill -9 of its first process; the others end by themselves."""
        self.process.kill()

    def workers(self) -> list[int]:
        """The processes that serve calls, by the log, which names each as it starts."""
        said = self.process.log.read_text(errors="replace")
        started = [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", said)]
        return [pid for pid in started if _is_running(pid)]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/livez", timeout=2, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


@dataclasses.dataclass(frozen=True)
class Setup:
    """What all replicas have in common. `settings` are environment variables; `serve` starts a replica when
    `--port` and `--workers` are added to it."""

    folder: Path
    workers: int
    settings: Mapping[str, str]
    serve: Sequence[str] = (*CUPO, "serve")
    steps_clocks: bool = False


def started_replicas(setup: Setup, count: int, ends: ExitStack) -> list[Replica]:
    """All started at once; `ends` stops them. Raises BadUse."""
    replicas = [_replica(setup, number) for number in range(1, count + 1)]
    for replica in replicas:
        ends.callback(replica.process.stop)
        replica.process.start()
    for replica in replicas:
        replica.wait_until_alive()
    return replicas


def _replica(setup: Setup, number: int) -> Replica:
    clock = make_clock(setup.folder, f"replica-{number}") if setup.steps_clocks else None
    environment = {**bare_environment(), **setup.settings, **(clock.environment if clock else {})}
    port = free_port()
    words = (*ENDS_WITH_US, *setup.serve, "--port", str(port), "--workers", str(setup.workers))
    return Replica(number, port, Process(words, setup.folder / f"replica-{number}.log", environment), clock)


def bare_environment() -> dict[str, str]:
    """This process's, without settings of the service: what the shell has set is not for the replicas."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}


def pause(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
