"""Samples in files and in figures: one JSON object a line, and percentiles per answer."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.client import Sample
from loadtest.errors import BadUse

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


class Answer(NamedTuple):
    """What calls are counted by: what was asked, and what came back."""

    action: str
    status: int
    code: str

    @property
    def label(self) -> str:
        if self.status == 0:
            return f"{self.action} {self.code}".strip()
        return f"{self.action} {self.status} {self.code}".strip()

    @property
    def family(self) -> str:
        """For colour and order: what the answer means to the one who called."""
        if self.status == 201:
            return "won"
        if self.status == 409:
            return "refused"
        if 200 <= self.status < 300:
            return "done"
        return "failed" if self.status == 0 or self.status >= 500 else "other"


FAMILIES = ("won", "refused", "done", "other", "failed")


class Figures(NamedTuple):
    """Of one answer. Latencies in seconds; `percentiles` go with PERCENTILES."""

    answer: Answer
    calls: int
    percentiles: tuple[float, ...]
    longest: float


def answer_of(sample: Sample) -> Answer:
    return Answer(sample.action, sample.status, sample.code)


def by_answer(samples: Iterable[Sample]) -> dict[Answer, list[Sample]]:
    """Winners first, then refusals, then the rest; the most frequent first within each."""
    groups: dict[Answer, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(answer_of(sample), []).append(sample)
    order = sorted(groups, key=lambda a: (FAMILIES.index(a.family), -len(groups[a]), a))
    return {answer: groups[answer] for answer in order}


def figures(samples: Sequence[Sample]) -> list[Figures]:
    """One per answer."""
    return [_figures(answer, group) for answer, group in by_answer(samples).items()]


def figures_of_all(samples: Sequence[Sample]) -> Figures:
    return _figures(Answer("all calls", 0, ""), samples)


def _figures(answer: Answer, samples: Sequence[Sample]) -> Figures:
    latencies = sorted(sample.latency for sample in samples)
    return Figures(
        answer,
        len(latencies),
        tuple(percentile(latencies, p) for p in PERCENTILES),
        max(latencies, default=0.0),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value that at least `percent` % of all do not exceed. 0 for none at all."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100 - 1e-9) - 1)]


def as_text(seconds: float) -> str:
    """With three significant digits, as people read it: 850 µs, 12.3 ms, 2.05 s."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        value = seconds * factor
        if value < 999.5:
            return f"{value:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for sample in samples:
            file.write(json.dumps(sample._asdict(), separators=(",", ":")) + "\n")


def read_samples(path: Path) -> list[Sample]:
    """Raises BadUse where the file is not what write_samples writes."""
    try:
        with path.open(encoding="utf-8") as file:
            return [Sample(**json.loads(line)) for line in file]
    except (OSError, ValueError, TypeError) as error:
        raise BadUse(f"{path} cannot be read as samples: {error}") from error
