"""What `cupo audit` shows: a bar on a terminal, what was found, and the numbers."""

import json
import time
from collections import Counter
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from app.audit.findings import AboveLimit, Finding, OrphanLock, TrailBroken
from app.audit.service import Page
from app.audit.trail import Cause

_CAUSES = {
    Cause.PASSED: "a device came that should have been refused",
    Cause.UNTOLD: "the trail does not tell how",
    Cause.LOWERED: "the limit was lowered",
    Cause.IMPORTED: "imported with --over-limit keep",
}
_STRAYS = {
    "device_without_event": "is there, and by the trail should not be",
    "event_without_device": "is not there, and by the trail should be",
}
_COUNTED = {
    "above_limit passed": "users above their limit: a device came that should have been refused",
    "above_limit untold": "users above their limit: the trail does not tell how",
    "above_limit lowered": "users above their limit since it was lowered",
    "above_limit imported": "users above their limit by an import",
    "device_without_event": "devices that are there, and by the trail should not be",
    "event_without_device": "devices that are not there, and by the trail should be",
    "orphan_lock": "lock rows of users who have nothing else",
}


class Screen:
    """Tells findings on the standard output as they are found: they may be more than fit into memory.

    As text, or with `as_json` an object a line, the last of which has the numbers.
    """

    def __init__(self, estimated_rows: int | None, *, as_json: bool) -> None:
        self._as_json = as_json
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("auditing", total=estimated_rows)
        self._began = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._rows = 0
        self.has_failures = False

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, page: Page) -> None:
        for finding in page.found:
            self._counts[_kind_of(finding)] += 1
            self.has_failures |= finding.is_failure
            if self._as_json:
                typer.echo(finding.model_dump_json())
            elif not isinstance(finding, OrphanLock):
                typer.echo(_text_of(finding))
        self._rows += page.rows
        self._progress.update(self._bar, completed=self._rows)

    def show_summary(self) -> None:
        seconds = time.monotonic() - self._began
        counts = {kind: self._counts[kind] for kind in _COUNTED}
        if self._as_json:
            named = {kind.replace(" ", "_"): count for kind, count in counts.items()}
            facts = {"ok": not self.has_failures, "rows": self._rows, "seconds": round(seconds, 3)}
            typer.echo(json.dumps({"summary": {**facts, **named}}))
            return
        for kind, count in counts.items():
            typer.echo(f"{count:>11,}  {_COUNTED[kind]}")
        typer.echo(f"{self._rows:>11,}  rows in {seconds:.1f} s")


def _kind_of(finding: Finding) -> str:
    return f"above_limit {finding.cause}" if isinstance(finding, AboveLimit) else finding.finding


def _text_of(finding: AboveLimit | TrailBroken) -> str:
    if isinstance(finding, TrailBroken):
        return f"user {finding.user_id}: device {finding.device_id} {_STRAYS[finding.finding]}"
    since = f" since {finding.since:%Y-%m-%dT%H:%M:%S.%f}Z, event {finding.event_id}" if finding.since else ""
    return (
        f"user {finding.user_id}: {finding.used} of {finding.limit} devices{since}: {_CAUSES[finding.cause]}"
    )
