"""What is made of the samples: ratios of medians, their spread, a line through a series."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Ratio:
    """Of two medians; `lowest` and `highest` are of the ratios within each round."""

    value: float
    lowest: float
    highest: float


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Both by round: what was measured in one round was measured at nearly one time."""
    rounds = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(ours) / statistics.median(theirs), min(rounds), max(rounds))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line that fits best (least squares); of fewer than two points, 0."""
    if len(points) < 2:
        return 0.0
    at, values = zip(*points, strict=True)
    return statistics.linear_regression(at, values).slope
