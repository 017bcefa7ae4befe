"""The work of `cupo import`, up to its exit status."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

import typer

from app.db import Database
from app.errors import Unavailable
from app.imports.rows import BadFile
from app.imports.run import Import, steps
from app.imports.screen import Screen
from app.settings import Settings

ALL_IMPORTED, SOME_BAD, BAD_USE, NO_DATABASE, INTERRUPTED = 0, 1, 2, 3, 130
# Nobody waits for a batch as for an answer over HTTP: better late than given up.
PATIENCE_SECONDS = 60
STOPPING_SECONDS = 5  # for the batch that Ctrl-C came in
STDERR = 2
GO_ON = "The same command goes on from here."


def import_file(path: Path, plan: Import) -> int:
    """Import the file and show it: the exit status."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return _import(path, plan, file)
    except OSError as error:
        return _complain(f"{path}: {error.strerror or error}", BAD_USE)
    except BadFile as bad:
        return _complain(f"{path}: {bad}", BAD_USE)


def _import(path: Path, plan: Import, file: TextIO) -> int:
    # Runs again are none of the reader's business, and what gives up is told at the end.
    logging.getLogger("app").addHandler(logging.NullHandler())
    db = Database(_patient(plan.settings))
    try:
        with Screen(path.name) as screen:
            status = _import_and_show(db, plan, file, screen)
    finally:
        db.close()
    typer.echo(screen.summary(dry_run=plan.dry_run))
    return status or (SOME_BAD if screen.bad_lines else ALL_IMPORTED)


def _import_and_show(db: Database, plan: Import, file: TextIO, screen: Screen) -> int:
    try:
        with _first_interrupt_noted() as interrupted, closing(steps(db, plan, file)) as all_steps:
            for step in all_steps:
                screen.show(step)
                if interrupted.is_set():
                    break
            else:
                return ALL_IMPORTED
    except KeyboardInterrupt:
        pass
    except Unavailable as unavailable:
        reason = getattr(unavailable.__cause__, "orig", None)
        told = f" ({reason})" if reason else ""
        return _complain(f"{unavailable.detail}{told} {GO_ON}", NO_DATABASE)
    return _complain("Stopped." if plan.dry_run else f"Stopped. {GO_ON}", INTERRUPTED)


def _patient(settings: Settings) -> Settings:
    return settings.model_copy(update={"lock_budget_seconds": PATIENCE_SECONDS, "database_pool_size": 1})


def _complain(reason: str, status: int) -> int:
    typer.echo(f"cupo: {reason}", file=sys.stderr)
    return status


@contextmanager
def _first_interrupt_noted() -> Iterator[threading.Event]:
    """The event is set by Ctrl-C, so that a batch is finished first, if that takes no more than a moment.

    It takes long while the database is away or a lock is held. A second Ctrl-C interrupts at once.
    """
    noted = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        noted.set()
        # Not by a stream: it may be the one that was interrupted.
        os.write(STDERR, b"cupo: Stopping after this batch; Ctrl-C again stops at once.\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, STOPPING_SECONDS)

    before = signal.signal(signal.SIGINT, note), signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        yield noted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGINT, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
