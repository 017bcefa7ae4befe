"""What `cupo worker` answers over HTTP, where it is to: its metrics, and whether it still gets on."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from app.settings import Settings

# Its longest step waits for one user's lock, for the lock budget.
MOST_SECONDS_WITHOUT_PROGRESS = 120


class Progress:
    """When the worker last got on with something."""

    def __init__(self) -> None:
        self._noted_at = time.monotonic()

    def note(self) -> None:
        self._noted_at = time.monotonic()

    def has_stopped(self, pause_seconds: float) -> bool:
        """For much longer than it pauses between two passes."""
        return time.monotonic() - self._noted_at > MOST_SECONDS_WITHOUT_PROGRESS + pause_seconds


@contextmanager
def open_port(settings: Settings, progress: Progress) -> Iterator[None]:
    """Answer `/metrics` and `/livez` during the block, on `CUPO_WORKER_METRICS_PORT` where that is set.

    Raises OSError where the port cannot be had.
    """
    if settings.worker_metrics_port is None:
        yield
        return

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # of a connection on which nothing comes, so that it keeps no thread

        def do_GET(self) -> None:
            if self.path == "/metrics":
                encode, media_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(200, media_type, encode(REGISTRY))
            elif self.path == "/livez":
                stopped = progress.has_stopped(settings.sweep_interval_seconds)
                self._answer(503 if stopped else 200, "text/plain", b"stopped\n" if stopped else b"alive\n")
            else:
                self._answer(404, "text/plain", b"not found\n")

        def _answer(self, status: int, media_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Asked every few seconds; nothing to tell."""

    server = ThreadingHTTPServer((settings.host, settings.worker_metrics_port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="port", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
