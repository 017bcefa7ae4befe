"""What `cupo import` shows while it runs and at its end."""

import time
from collections import Counter
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.imports.rows import BadLine
from app.imports.run import Checked, Decided, Step
from app.imports.service import Decision, Outcome

PARTS_OF_PROGRESS = 10

_LEFT_OUT = {
    Outcome.OVER_LIMIT: "user {user} may have {limit} devices",
    Outcome.BLOCKED: "device {device} is blocked for user {user}",
    Outcome.EXPIRED: "the lease has run out",
}


class Screen:
    """Counts the steps of an import and shows them: a bar on a terminal, plain lines elsewhere.

    Everything goes to the standard error but the summary, which is for the caller to print.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._bar = self._progress.add_task("checking", total=None)
        self._began = time.monotonic()
        self._total: int | None = None
        self._done = 0
        self._outcomes: Counter[Outcome] = Counter()
        self.bad_lines = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, step: Step) -> None:
        match step:
            case BadLine(line, reason):
                self._show_bad(line, reason)
            case Checked(rows, is_all):
                self._show_checked(rows, is_all)
            case Decided(decisions):
                self._show_decided(decisions)

    def summary(self, *, dry_run: bool) -> str:
        """Several lines: how many devices had which outcome, and how long it took."""
        skipped = "would be skipped, {}" if dry_run else "skipped, {}"
        words = {
            Outcome.IMPORTED: "would be imported" if dry_run else "imported",
            Outcome.KNOWN: "already there",
            **{outcome: skipped.format(outcome) for outcome in _LEFT_OUT},
        }
        counts = [(self._outcomes[outcome], text) for outcome, text in words.items()]
        seconds = time.monotonic() - self._began
        return "\n".join(
            [
                *(f"{count:>11,}  {text}" for count, text in [*counts, (self.bad_lines, "bad lines")]),
                f"{self._done:>11,}  devices in {seconds:.1f} s, {self._done / seconds:,.0f} a second",
            ]
        )

    def _show_bad(self, line: int, reason: str) -> None:
        self.bad_lines += 1
        self._say(f"{self._name}:{line}: {reason}")
        if self._total is not None:  # found once the lines lay side by side
            self._total -= 1
            self._progress.update(self._bar, total=self._total)

    def _show_checked(self, rows: int, is_all: bool) -> None:
        self._progress.update(self._bar, completed=rows)
        if is_all:
            self._total = rows
            self._progress.update(self._bar, description="importing", completed=0, total=rows)
            self._say_elsewhere(f"{rows:,} devices to import, {self.bad_lines:,} bad lines")

    def _show_decided(self, decisions: list[Decision]) -> None:
        for one in decisions:
            self._outcomes[one.outcome] += 1
            if one.outcome in _LEFT_OUT:
                facts = {"user": one.row.user_id, "device": one.row.device_id, "limit": one.limit}
                self._say(f"{self._name}:{one.row.line}: skipped: {_LEFT_OUT[one.outcome].format(**facts)}")
        before = self._part()
        self._done += len(decisions)
        self._progress.update(self._bar, completed=self._done)
        if self._part() > before:
            self._say_elsewhere(f"{self._done:,} of {self._total or 0:,}")

    def _part(self) -> int:
        return self._done * PARTS_OF_PROGRESS // max(1, self._total or 0)

    def _say(self, text: str) -> None:
        self._console.print(text)

    def _say_elsewhere(self, text: str) -> None:
        """Where there is no bar to see."""
        if not self._console.is_terminal:
            self._say(text)
