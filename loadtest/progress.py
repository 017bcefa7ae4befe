"""What is seen while a run goes on: a bar where there is a terminal, a plain line now and then where not."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadtest.client import Sample
from loadtest.samples import as_text

PLAIN_LINE_SECONDS = 2.0
STEPS_PER_DECADE = 100  # of the running p99: 2.3 % apart, and the whole is a few hundred counters


class Latencies:
    """Counts on a logarithmic scale: a percentile so far without keeping or sorting every value."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._total = 0

    def add(self, seconds: float) -> None:
        self._counts[math.ceil(math.log10(max(seconds, 1e-6)) * STEPS_PER_DECADE)] += 1
        self._total += 1

    def percentile(self, percent: float) -> float:
        """At most 2.3 % above the true one."""
        left = self._total * percent / 100
        for step in sorted(self._counts):
            left -= self._counts[step]
            if left <= 0:
                return float(10 ** (step / STEPS_PER_DECADE))
        return 0.0


class Tally:
    """The run so far in figures."""

    def __init__(self, planned: int) -> None:
        self.planned = planned
        self.done = 0
        self.statuses: Counter[str] = Counter()
        self.latencies = Latencies()

    def see(self, samples: Sequence[Sample]) -> None:
        self.done += len(samples)
        for sample in samples:
            self.statuses[str(sample.status or sample.code)] += 1
            self.latencies.add(sample.latency)

    def line(self, seconds: float) -> str:
        rate = self.done / seconds if seconds > 0 else 0.0
        statuses = " ".join(f"{status}:{count}" for status, count in sorted(self.statuses.items()))
        return f"{rate:.0f}/s  {statuses}  p99 {as_text(self.latencies.percentile(99))}"


class Watch:
    """Called with fresh samples and the seconds since the start; draws as often as is worth it."""

    def __init__(self, planned: int, console: Console, progress: Progress | None) -> None:
        self._tally = Tally(planned)
        self._console = console
        self._progress = progress
        self._task = progress.add_task("", total=planned, figures="") if progress else None
        self._next_line = PLAIN_LINE_SECONDS

    def __call__(self, samples: Sequence[Sample], seconds: float) -> None:
        self._tally.see(samples)
        if self._progress is not None and self._task is not None:
            figures = self._tally.line(seconds)
            self._progress.update(self._task, completed=self._tally.done, figures=figures)
        elif seconds >= self._next_line:
            self._next_line = seconds + PLAIN_LINE_SECONDS
            done = f"{self._tally.done}/{self._tally.planned} calls"
            self._console.print(f"{seconds:.0f} s  {done}  {self._tally.line(seconds)}", highlight=False)


@contextlib.contextmanager
def watching(planned: int, console: Console) -> Iterator[Watch]:
    if not console.is_terminal:
        yield Watch(planned, console, None)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[figures]}"))
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        yield Watch(planned, console, progress)
