"""A receiver that notes what comes when, fast enough for several workers; and workers to send to it."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.settings import Settings
from tests.processes import started
from tests.services import ROOT_KEY

HANGING = "/hang"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class Arrival:
    """One attempt, as the receiver saw it."""

    path: str
    webhook_id: str
    body: bytes
    at: float
    traceparent: str | None = None


class Recorder:
    """What has come. What begins with `/hang` is never answered, all else by 200, after a pause."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.most_at_once: Counter[str] = Counter()
        self.pause_seconds = 0.0
        self.port = 0
        self._at_once: Counter[str] = Counter()
        self._ids_at_once: Counter[str] = Counter()
        self.twice_at_once: list[str] = []
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def wait_until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Looked at with each arrival, and now and then, since what it asks may be elsewhere."""
        give_up_at = time.monotonic() + seconds
        with self._changed:
            while not holds():
                assert time.monotonic() < give_up_at, f"{len(self.arrivals)} arrivals after {seconds} s"
                self._changed.wait(0.05)

    def wait_for(self, arrivals: int) -> None:
        self.wait_until(lambda: len(self.arrivals) >= arrivals)

    def wait_for_path(self, path: str) -> None:
        self.wait_until(lambda: any(arrival.path == path for arrival in self.arrivals), 15)

    def ids(self) -> Counter[str]:
        return Counter(arrival.webhook_id for arrival in self.arrivals)

    def open_requests(self) -> list[str]:
        """The ids of what has come and was not answered yet."""
        return list((+self._ids_at_once).elements())

    def by_path(self) -> dict[str, list[Arrival]]:
        found: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in list(self.arrivals):
            found[arrival.path].append(arrival)
        return found

    def start(self) -> None:
        self._thread.start()
        assert self._listening.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, backlog=1000)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._stopped.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = await reader.readexactly(int(fields["content-length"]))
                path = head.split(" ", 2)[1]
                ends = reader.read(1) if path.startswith(HANGING) else asyncio.sleep(self.pause_seconds)
                await self._answer(path, fields, body, writer, ends)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(
        self,
        path: str,
        fields: dict[str, str],
        body: bytes,
        writer: asyncio.StreamWriter,
        ends: Awaitable[object],
    ) -> None:
        """Answer when `ends` has: a pause, or the sender's patience."""
        webhook_id = fields["webhook-id"]
        self._at_once[path] += 1
        self._ids_at_once[webhook_id] += 1
        self.most_at_once[path] = max(self.most_at_once[path], self._at_once[path])
        if self._ids_at_once[webhook_id] > 1:
            self.twice_at_once.append(webhook_id)
        try:
            await ends
        finally:
            self._at_once[path] -= 1
            self._ids_at_once[webhook_id] -= 1
        with self._changed:
            self.arrivals.append(Arrival(path, webhook_id, body, time.monotonic(), fields.get("traceparent")))
            self._changed.notify_all()
        writer.write(OK)
        await writer.drain()


@contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder()
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop()


@contextmanager
def running_worker(
    settings: Settings, folder: Path, name: str = "worker", **more: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """`cupo worker` that may send to the loopback address; its output goes to a file in `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    environment |= {
        "CUPO_DATABASE_URL": settings.database_url.get_secret_value(),
        "CUPO_ROOT_KEY": ROOT_KEY,
        "CUPO_WEBHOOKS_ALLOW_HTTP": "true",
        "CUPO_WEBHOOKS_ALLOW_PRIVATE": "true",
    }
    environment |= {f"CUPO_{key.upper()}": str(value) for key, value in more.items()}
    log = folder / f"{name}.log"
    with (
        log.open("ab") as output,
        started(
            [sys.executable, "-m", "app", "worker"], env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        yield process
