"""The log: one line for each event, on standard error, JSON or, on a terminal, for the eye.

The modules log by the standard library, as uvicorn and Python's warnings do; structlog renders for the eye.
"""

import datetime
import json
import logging
import logging.handlers
import os
import queue
import sys
import threading
import time
from select import PIPE_BUF
from typing import Any

import structlog

from app.metrics import LOG_LINES_DROPPED
from app.recording import current_calls
from app.settings import Settings

STANDARD_ERROR = 2
MOST_LINES_WAITING = 10_000
GATHER_SECONDS = (
    0.05  # lines are written together: to wake the thread for each would take time from the calls
)
CLOSE_SECONDS = 1  # for what is still to be written when the process ends


def configuration(settings: Settings) -> dict[str, Any]:
    """For `logging.config.dictConfig`, and for uvicorn, which hands it to its worker processes."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not on_terminal)
    level = settings.log_level.upper()
    ours = {"level": level}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"lines": {"()": "app.logs.WaitingLines", "as_json": as_json}},
        "root": {"handlers": ["lines"], "level": "ERROR" if level == "ERROR" else "WARNING"},
        "loggers": {"app": ours, "uvicorn": ours, "uvicorn.error": ours},
    }


class WaitingLines(logging.handlers.QueueHandler):
    """Writes from a thread of its own: nobody who logs waits for what takes the lines, or fails with it.

    Past 10,000 lines that wait, further ones are dropped and counted.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._waiting: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        super().__init__(self._waiting)
        _leave_out_what_no_line_tells()
        logging.raiseExceptions = False  # it would have the logging thread write to standard error itself
        logging.captureWarnings(capture=True)
        self._output = _Descriptor(STANDARD_ERROR)
        self._sink = logging.StreamHandler(self._output)
        self._sink.setFormatter(_formatter(as_json))
        self._sink.lock = None  # one thread uses it; at the end of the process, logging would wait for it
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Add whom it is about, which the writing thread does not know; rendering is left to that thread."""
        calls = current_calls()
        if calls and not hasattr(record, "request_id"):
            record.request_id = ",".join(call.request_id for call in calls)
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= MOST_LINES_WAITING:
            LOG_LINES_DROPPED.inc()
        else:
            self._waiting.put_nowait(record)

    def close(self) -> None:
        self._waiting.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        super().close()

    def _write(self) -> None:
        is_open = True
        while is_open:
            gathered = [self._waiting.get()]
            time.sleep(GATHER_SECONDS)
            gathered += [self._waiting.get() for _ in range(self._waiting.qsize())]
            for record in gathered:
                if record is None:
                    is_open = False
                else:
                    self._sink.handle(record)
            self._output.send()


def _leave_out_what_no_line_tells() -> None:
    """Where in the code it was logged, in which thread and task: to find that out takes as long as the rest.

    Python's own switches ("Optimization" in the documentation of `logging`).
    """
    logging._srcfile = None  # noqa: SLF001 - the documented name
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined] # new in Python 3.12


class _Descriptor:
    """A stream with no lock and no buffer, which a thread that never returns could keep from the others."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lines: list[str] = []

    def write(self, text: str) -> None:
        self._lines.append(text)

    def flush(self) -> None:
        """Called for each line; `send` is for several."""

    def send(self) -> None:
        lines, self._lines = self._lines, []
        together = b""
        for line in lines:
            encoded = line.encode(errors="backslashreplace")
            # What is no longer than this reaches a pipe as a whole, whatever other processes write to it.
            if len(together) + len(encoded) > PIPE_BUF:
                self._write(together)
                together = b""
            together += encoded
        self._write(together)

    def _write(self, rest: bytes) -> None:
        lines = rest.count(b"\n")
        try:
            while rest:
                rest = rest[os.write(self._number, rest) :]
        except OSError:
            LOG_LINES_DROPPED.inc(lines)


def _formatter(as_json: bool) -> logging.Formatter:
    if as_json:
        return JsonLines()
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _with_time_without_nothing,
    ]
    last = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
    )


def _with_time_without_nothing(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not known, and uvicorn's second copy of its text in colours; say when it was."""
    told = {name: value for name, value in event.items() if value is not None and name not in _UNTOLD}
    told["timestamp"] = _rfc3339(event["_record"].created)
    return told


def _rfc3339(unix_time: float) -> str:
    at = datetime.datetime.fromtimestamp(unix_time, datetime.UTC)
    return f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


_UNTOLD = frozenset({"color_message"})
# What every record has, whatever is logged.
_OF_EACH_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object for each record, with what was given as `extra`.

    By hand: structlog takes more than twice as long for it, and there is a line for each call.
    """

    def __init__(self) -> None:
        super().__init__()
        self._encode = json.JSONEncoder(ensure_ascii=False, default=repr).encode

    def format(self, record: logging.LogRecord) -> str:
        told = {"event": record.getMessage(), "level": record.levelname.lower(), "logger": record.name}
        told |= {
            name: value
            for name, value in vars(record).items()
            if value is not None and name not in _OF_EACH_RECORD and name not in _UNTOLD
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        told["timestamp"] = _rfc3339(record.created)
        return self._encode(told)
