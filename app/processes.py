"""The processes of `cupo serve`: one that serves, or one that watches over several.

SIGTERM or Ctrl-C begins an orderly end: `/readyz` says 503, calls are served until the delay has passed, the
port closes, what is in flight is finished. A second signal ends everything at once.
"""

import logging
import math
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from socket import socket
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.server import HANDLED_SIGNALS

from app.logs import configuration
from app.server import STOPPING_SECONDS, BoundedProtocol, Bounds
from app.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1  # how soon a signal shows, which does not end a wait

spawn = multiprocessing.get_context("spawn")
multiprocessing.allow_connection_pickling()  # the workers get a socket


def serve(settings: Settings) -> int:
    """Serve until told to stop; the exit status."""
    bounds = Bounds(settings.max_connections, settings.head_timeout_seconds, settings.body_timeout_seconds)
    config = uvicorn.Config(
        "app.main:app",
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        loop="uvloop",
        http=partial(BoundedProtocol, bounds=bounds),  # type: ignore[arg-type] # uvicorn only calls it
        ws="none",
        access_log=False,  # app.ops.requests says more
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=longest_call_seconds(settings),
        log_config=configuration(settings),
    )
    if settings.workers == 1:
        return _serve_alone(Server(config, settings.shutdown_delay_seconds))
    return Watch(config, settings.shutdown_delay_seconds).run()


def longest_call_seconds(settings: Settings) -> int:
    """The end of its body, the wait for a connection, the transaction's budget, two seconds for the rest."""
    waits = STOPPING_SECONDS + settings.database_pool_wait_seconds + settings.lock_budget_seconds
    return math.ceil(waits) + 2


class Server(uvicorn.Server):
    """uvicorn's, which says at `/readyz` that it will stop, and stops only after the delay."""

    def __init__(self, config: uvicorn.Config, delay_seconds: float, *, is_watched: bool = False) -> None:
        super().__init__(config)
        self._delay_seconds = delay_seconds
        self._is_watched = is_watched
        self._stops_at = 0.0

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002 - uvicorn's signature
        """The first signal only: the next has its plain effect, or is left to the watching process."""
        if self.should_exit:
            return
        self.should_exit = True
        self._stops_at = time.monotonic() + self._delay_seconds
        if hasattr(self, "lifespan"):  # each later request gets a copy of its state
            self.lifespan.state["is_stopping"] = True
        # Clients are to come back over a new connection, which a load balancer brings elsewhere.
        self.config.encoded_headers.append((b"connection", b"close"))
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        if not self._is_watched:
            for number in HANDLED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) and time.monotonic() >= self._stops_at


def _serve_alone(server: Server) -> int:
    server.run()
    return 0 if server.started else STARTUP_FAILURE


class Watch:
    """Keeps several workers on one port: one that dies is replaced, one that cannot start ends all."""

    def __init__(self, config: uvicorn.Config, delay_seconds: float) -> None:
        self._config = config
        self._delay_seconds = delay_seconds
        self._workers: list[BaseProcess] = []
        self._is_stopping = False
        self._status = 0

    def run(self) -> int:
        """Until all workers have ended; the exit status."""
        for number in HANDLED_SIGNALS:
            signal.signal(number, lambda *_: self._stop())
        with shared_metrics() as folder:
            port = self._config.bind_socket()
            self._workers = [self._start(port) for _ in range(self._config.workers)]
            while self._workers:
                ended = wait([worker.sentinel for worker in self._workers], LOOK_SECONDS)
                for worker in [worker for worker in self._workers if worker.sentinel in ended]:
                    self._replace(worker, port, folder)
                if self._is_stopping:
                    port.close()  # or callers would wait on it after the last worker has closed its own
        return self._status

    def _start(self, port: socket) -> BaseProcess:
        worker = spawn.Process(target=_work, args=(self._config, port, self._delay_seconds))
        with _ctrl_c_blocked():
            worker.start()
        if self._is_stopping:  # a signal came in between
            worker.terminate()
        return worker

    def _replace(self, worker: BaseProcess, port: socket, folder: str) -> None:
        worker.join()
        self._workers.remove(worker)
        mark_process_dead(worker.pid, folder)  # type: ignore[no-untyped-call] # not in its types
        if self._is_stopping:
            return
        if worker.exitcode == STARTUP_FAILURE:
            log.error("Worker %d could not start, so that no other would", worker.pid)
            self._status = STARTUP_FAILURE
            self._stop()
            return
        log.error("Worker %d ended with status %s and is replaced", worker.pid, worker.exitcode)
        self._workers.append(self._start(port))

    def _stop(self) -> None:
        """The first time, let the workers finish; the second time, end them."""
        for worker in self._workers:
            if self._is_stopping:
                worker.kill()
            else:
                worker.terminate()
        self._is_stopping = True


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """What starts meanwhile is never interrupted: Ctrl-C is for the watching process, which tells the others.

    Here it comes a moment later.
    """
    resource_tracker.ensure_running()  # starting it would lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(config: uvicorn.Config, port: socket, delay_seconds: float) -> None:
    """A worker, which does not outlive the process that watches over it."""
    config.configure_logging()
    threading.Thread(target=_stop_with_parent, name="watch", daemon=True).start()
    server = Server(config, delay_seconds, is_watched=True)
    try:
        server.run([port])
    except BaseException:
        if server.started:
            raise
        log.critical("The worker cannot start", exc_info=True)
        raise SystemExit(STARTUP_FAILURE) from None


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def shared_metrics() -> Iterator[str]:
    """A folder in which the processes started meanwhile keep their metrics, and each finds those of all."""
    with tempfile.TemporaryDirectory(prefix="cupo-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        yield folder
