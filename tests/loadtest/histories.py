"""Histories to judge: samples by hand, and random ones of a service that keeps every promise."""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.client import TIMEOUT, Sample
from loadtest.plan import Action

LIMIT = 2


def sample(
    status: int, sent: float, finished: float, action: Action = "register", device: str = "a", user: int = 1
) -> Sample:
    """One call; status 0 is one without an answer."""
    codes = {0: TIMEOUT, 409: "device_limit_reached", 404: "device_not_found", 503: "contention"}
    return Sample(sent, sent, finished, action, user, device, status, codes.get(status, ""))


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - histories, no secrets


class Told(NamedTuple):
    samples: list[Sample]
    rows: list[str]


def truthful(rng: random.Random, calls: int, devices: str = "abcd") -> Told:
    """Calls on one user that overlap at random, each taking effect at some instant of its own; a tenth has no
    answer, and of these some take effect late or never. The rows are looked at when all answers are in."""
    planned: list[tuple[float, float, float, Action, str, bool]] = []
    for _ in range(calls):
        sent = rng.uniform(0, calls / 2)
        finished = sent + rng.uniform(0.1, 3)
        unanswered = rng.random() < 0.1
        late = rng.choice((rng.uniform(sent, finished), finished + rng.uniform(0, 5), math.inf))
        effect = late if unanswered else rng.uniform(sent, finished)
        action: Action = rng.choice(("register", "register", "revoke"))
        planned.append((effect, sent, finished, action, rng.choice(devices), unanswered))
    held: set[str] = set()
    rows: set[str] = set()
    samples: list[Sample] = []
    seen_at = max(finished for _, _, finished, *_ in planned)
    for effect, sent, finished, action, device, unanswered in sorted(planned):
        status = 0 if effect == math.inf else _apply(held, action, device)
        samples.append(sample(0 if unanswered else status, sent, finished, action, device))
        if effect <= seen_at:
            rows = set(held)
    rng.shuffle(samples)
    return Told(samples, sorted(rows))


def _apply(held: set[str], action: Action, device: str) -> int:
    if action == "revoke":
        if device not in held:
            return 404
        held.remove(device)
        return 204
    if device in held:
        return 200
    if len(held) >= LIMIT:
        return 409
    held.add(device)
    return 201


def by_device(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for one in samples:
        found.setdefault(one.device, []).append(one)
    return found
