"""Values to places on a drawing: scales, their ticks, and the few SVG elements that the plots are made of."""

import dataclasses
import html
import math
from collections.abc import Iterable
from typing import Protocol

from loadtest.samples import as_text


class Scale(Protocol):
    """`__call__` gives the place of a value, `ticks` the values worth a line and a label, ascending."""

    def __call__(self, value: float) -> float: ...
    def ticks(self) -> list[tuple[float, str]]: ...


@dataclasses.dataclass(frozen=True)
class Linear:
    """From 0 to `most`, drawn from `begin` to `end`. Labels are seconds, or plain numbers."""

    most: float
    begin: float
    end: float
    seconds: bool = False

    def __call__(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * min(1.0, max(0.0, value / self.most))

    def ticks(self) -> list[tuple[float, str]]:
        rough = self.most / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        values = [step * n for n in range(int(self.most / step + 1e-9) + 1)]
        return [(value, self._label(value)) for value in values]

    def _label(self, value: float) -> str:
        if not self.seconds:
            return f"{value:,.10g}"
        return as_text(value) if value else "0"


@dataclasses.dataclass(frozen=True)
class Log:
    """From `least` to `most` seconds, both above 0. Ticks at 1, 2, 5, or only at powers of ten if many."""

    least: float
    most: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        span = math.log(self.most / self.least)
        share = math.log(min(self.most, max(self.least, value)) / self.least) / span
        return self.begin + (self.end - self.begin) * share

    def ticks(self) -> list[tuple[float, str]]:
        decades = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        factors = (1,) if len(decades) > 4 else (1, 2, 5)
        values = [10.0**power * factor for power in decades for factor in factors]
        return [(v, as_text(v)) for v in values if self.least * 0.999 <= v <= self.most * 1.001]


def log_around(values: Iterable[float], begin: float, end: float) -> Log:
    """A log scale that holds all values, with at least a factor of ten and rounded outwards to 1, 2, 5."""
    values = [max(value, 1e-5) for value in values] or [1e-3]
    least, most = _below(min(values)), _above(max(values))
    if most < least * 10:
        most = least * 10
    return Log(least, most, begin, end)


def linear_to(most: float, begin: float, end: float, *, seconds: bool = False) -> Linear:
    return Linear(most * 1.05 if most > 0 else 1.0, begin, end, seconds)


def _below(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(power * factor for factor in (1, 2, 5) if power * factor <= value * 1.0000001)


def _above(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return min(power * factor for factor in (1, 2, 5, 10) if power * factor >= value * 0.9999999)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    shape = f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" class="{kind}"'
    return f"{shape}><title>{html.escape(title)}</title></rect>" if title else f"{shape}/>"


def circle(x: float, y: float, radius: float, kind: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"/>'


def path(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through all points; of a single one a dot, where the line's ends are round."""
    places = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{places}" class="{kind}"/>'


def drawing(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """One figure, named for those who do not see it."""
    name = html.escape(title)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{name}" '
        f'preserveAspectRatio="xMinYMin meet">{"".join(parts)}</svg>'
    )
