"""A service that answers registrations as fast as it can and does not do what it says.

`FAULT` says what is wrong: `lies` answers 201 and writes nothing, `lenient` knows no limit, `fails` breaks
down at every tenth call after its first second, and says so as uvicorn would.
"""

import itertools
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULT = os.environ["FAULT"]
SOUND_SECONDS = 1.0
_calls = itertools.count(1)
_first_call_at: list[float] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        number = next(_calls)
        if not _first_call_at:
            _first_call_at.append(time.monotonic())
        status = 409 if number == 3 and FAULT != "lenient" else 201
        if FAULT == "fails" and number % 10 == 0 and time.monotonic() - _first_call_at[0] > SOUND_SECONDS:
            status = 500
            print("ERROR:    Exception in ASGI application", flush=True)  # noqa: T201
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing, as uvicorn without its access log."""


print("Application startup complete", flush=True)  # noqa: T201
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
