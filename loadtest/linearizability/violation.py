"""Answers to one user that no order explains, and how they are told in words."""

import dataclasses
from collections.abc import Iterable

from loadtest.linearizability.operation import Operation
from loadtest.linearizability.part import Part

MOST_LINES = 40


@dataclasses.dataclass(frozen=True)
class Violation:
    """`part` is enough of the user's history to show it, `impossible` the call of it that no order gets past,
    `left_out` how many calls more the user's history has. As a string: several lines for people."""

    user: int
    part: Part
    impossible: Operation
    left_out: int

    @property
    def operations(self) -> tuple[Operation, ...]:
        """By when they were sent."""
        return tuple(sorted(self.part.operations, key=lambda one: one.sent))

    def __str__(self) -> str:
        return "\n".join(line for line in (self.headline, *self.lines(), self.footnote) if line)

    @property
    def headline(self) -> str:
        limit = "whatever the limit" if self.part.any_limit else f"limit {self.part.limit}"
        about = "" if self.part.devices is None else f", of {_named(self.part.devices)} alone"
        calls = len(self.part.operations)
        told = "this answer" if calls == 1 else f"these {calls} answers"
        return f"user {self.user}, {limit}{about}: no order explains {told}"

    @property
    def footnote(self) -> str:
        told = []
        if self.part.begins_later:
            told.append("before the first of them every order has left the user with no device")
        if self.left_out:
            told.append(f"{self.left_out:,} calls more of this user are left out, which do not matter here")
        return "; ".join(told)

    def lines(self) -> list[str]:
        """One for each call: when, relative to the first, by whom, what was asked, what was answered."""
        calls = self.operations[-MOST_LINES:]
        rows = [(*self.instants(one), one.process, asked(one), self.answer(one)) for one in calls]
        widths = [max(len(row[n]) for row in rows) for n in range(4)]
        lines = []
        for one, (sent, finished, process, ask, answer) in zip(calls, rows, strict=True):
            mark = "✕" if one == self.impossible else " "
            when = f"{sent:>{widths[0]}} … {finished:<{widths[1]}}"
            lines.append(f"{mark} {when}  {process:<{widths[2]}}  {ask:<{widths[3]}}  {answer}")
        return lines

    @property
    def first_sent(self) -> float:
        return min(one.sent for one in self.part.operations)

    def instants(self, one: Operation) -> tuple[str, str]:
        first = self.first_sent
        finished = "" if one.unknown else f"{1000 * (one.finished - first):.1f} ms"
        return f"{1000 * (one.sent - first):.1f} ms", finished

    def answer(self, one: Operation) -> str:
        """As far as it matters here."""
        if one.unknown:
            return f"unknown ({one.code or one.status})"
        if one.kind == "list":
            of_interest = self.part.devices
            shown = [name for name in one.seen if of_interest is None or name in of_interest]
            more = len(one.seen) - len(shown)
            return (", ".join(shown) or "nothing") + (
                f" (and {more} other{'' if more == 1 else 's'})" if more else ""
            )
        quota = one.quota if self.part.devices is None else None
        told = "" if quota is None else f"{quota.used} of {quota.limit}"
        return told if one.kind == "quota" else f"{one.status} {told}".strip()


def asked(one: Operation) -> str:
    if one.kind == "set_limit":
        return "set limit to the first one" if one.limit is None else f"set limit to {one.limit}"
    replacing = f" for {one.replaced}" if one.replaced else ""
    return f"{one.kind} {one.device}".strip() + replacing


def _named(devices: Iterable[str]) -> str:
    *some, last = sorted(devices)
    return f"devices {', '.join(some)} and {last}" if some else f"device {last}"
