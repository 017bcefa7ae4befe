"""What a run will do, decided before it begins: one seed, one sequence of calls."""

import dataclasses
import random
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from loadtest.errors import BadUse

Action = Literal["register", "repeat", "revoke", "list"]
ACTIONS: tuple[Action, ...] = ("register", "repeat", "revoke", "list")
Mix = tuple[tuple[Action, float], ...]

MAX_USERS = 2**20  # the users of one seed; the next seed's begin at least this much further on
MAX_CALLS = 2_000_000
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Call(NamedTuple):
    """One call to make. `due` counts in seconds from the start; in a race everything is due at once."""

    due: float
    action: Action
    user: int
    device: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """A race (`rate` 0: all calls at once) or a steady run (`rate` calls per second after the ramp)."""

    seed: int
    users: int
    calls: int
    limit: int
    mix: Mix
    rate: float = 0.0
    ramp_seconds: float = 0.0
    duration_seconds: float = 0.0

    @property
    def steady(self) -> bool:
        return self.rate > 0

    @property
    def first_user(self) -> int:
        """Where this seed's users begin: 2^52 … 2^53, above counted ids, below dated ones, exact in JSON.

        The user just below is the probe's, who is never part of a run.
        """
        return 2**52 + 1 + (random.Random(self.seed).getrandbits(32) << 20)  # noqa: S311 - a plan, no secret

    @property
    def probe_user(self) -> int:
        return self.first_user - 1

    def sequence(self) -> Iterator[Call]:
        """Every call in order. Repeat and revoke name devices that are registered if each call is answered
        before the next is sent; where there would be none, the call is a register."""
        rng = random.Random(self.seed)  # noqa: S311 - likewise
        deck = [self.first_user + n % self.users for n in range(self.calls)]
        rng.shuffle(deck)
        weights = [weight for _, weight in self.mix]
        actions = rng.choices([action for action, _ in self.mix], weights, k=self.calls)
        held = Held(self.limit)
        for n, (user, action) in enumerate(zip(deck, actions, strict=True)):
            yield self._call(n, user, action, held, rng)

    def _call(self, n: int, user: int, action: Action, held: "Held", rng: random.Random) -> Call:
        due = self._due(n)
        if action == "list":
            return Call(due, "list", user, "")
        if action == "register" or not held.devices:
            device = f"lt-{self.seed:x}-{n:x}"
            held.register(user, device)
            return Call(due, "register", user, device)
        user, device = held.pick(rng)
        if action == "revoke":
            held.revoke(user, device)
        return Call(due, action, user, device)

    def _due(self, n: int) -> float:
        if not self.steady:
            return 0.0
        in_ramp = self.rate * self.ramp_seconds / 2
        if n < in_ramp:
            return float((2 * n * self.ramp_seconds / self.rate) ** 0.5)
        return self.ramp_seconds + (n - in_ramp) / self.rate


class Held:
    """Which devices the users hold if each call is answered before the next is sent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used: dict[int, int] = {}
        self._place: dict[str, int] = {}
        self.devices: list[tuple[int, str]] = []

    def register(self, user: int, device: str) -> None:
        if self._used.get(user, 0) < self._limit:
            self._used[user] = self._used.get(user, 0) + 1
            self._place[device] = len(self.devices)
            self.devices.append((user, device))

    def pick(self, rng: random.Random) -> tuple[int, str]:
        return self.devices[rng.randrange(len(self.devices))]

    def revoke(self, user: int, device: str) -> None:
        self._used[user] -= 1
        place, last = self._place.pop(device), self.devices.pop()
        if last[1] != device:  # the last one moves into the gap, so that picking stays one step
            self.devices[place] = last
            self._place[last[1]] = place


def race(seed: int, users: int, calls: int, limit: int, mix: Mix) -> Plan:
    """All calls at once. Raises BadUse outside 1 … MAX_USERS users and 1 … MAX_CALLS calls."""
    _check("--users", users, MAX_USERS)
    _check("--calls", calls, MAX_CALLS)
    return Plan(seed, users, calls, limit, mix)


@dataclasses.dataclass(frozen=True)
class Pace:
    """How a steady run is sent: its full rate in calls per second; the ramp is a part of the duration."""

    rate: float
    ramp_seconds: float
    duration_seconds: float

    @property
    def calls(self) -> int:
        return round(self.rate * (self.duration_seconds - self.ramp_seconds / 2))


def steady(seed: int, users: int, pace: Pace, limit: int, mix: Mix) -> Plan:
    """Calls on a schedule. Raises BadUse where that schedule has no call or too many."""
    _check("--users", users, MAX_USERS)
    if pace.rate <= 0:
        raise BadUse("--rate must be above 0, for example 300/s")
    if not 0 <= pace.ramp_seconds <= pace.duration_seconds:
        raise BadUse("--ramp must not be longer than --duration, which it is a part of")
    _check("calls (--rate times --duration)", pace.calls, MAX_CALLS)
    return Plan(seed, users, pace.calls, limit, mix, pace.rate, pace.ramp_seconds, pace.duration_seconds)


def parse_rate(text: str) -> float:
    """`300/s`, `300`, `18000/min` → calls per second."""
    amount, _, unit = text.partition("/")
    try:
        return float(amount) / _SECONDS[unit.strip()]
    except (ValueError, KeyError):
        raise BadUse(f"--rate {text!r} is not a rate: write 300/s or 18000/min") from None


def parse_seconds(option: str, text: str) -> float:
    """`60s`, `2m`, `500ms`, `60` → seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if found is None or found[2] not in _SECONDS:
        raise BadUse(f"{option} {text!r} is not a duration: write 60s, 2m or 500ms")
    return float(found[1]) * _SECONDS[found[2]]


def parse_mix(text: str) -> Mix:
    """`register=4,repeat=2,revoke=2,list=2` → weights; an action left out does not occur."""
    weights: dict[Action, float] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        action = next((action for action in ACTIONS if action == name.strip()), None)
        if action is None or not re.fullmatch(r"\d+(\.\d+)?", weight.strip()):
            raise BadUse(f"--mix {part.strip()!r} is not understood: write {'=1,'.join(ACTIONS)}=1")
        weights[action] = float(weight)
    if sum(weights.values()) <= 0:
        raise BadUse("--mix gives every action the weight 0")
    return tuple(weights.items())


def _check(what: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise BadUse(f"{what} must be 1 to {most:,}, not {number:,}")
