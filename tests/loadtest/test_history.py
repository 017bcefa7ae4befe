"""The auditor's reasoning: no false alarm whatever the order, and nothing missed that no order explains."""

import itertools
from collections.abc import Sequence

import pytest

from loadtest.client import Sample
from loadtest.history import effect, fits, most_held_for_certain, refused_with_room, spare
from loadtest.invariants import check_user
from tests.loadtest.histories import LIMIT, by_device, sample, seeded, truthful


def fits_by_trying_all(samples: Sequence[Sample], present: bool) -> bool:
    """Every order of every choice of unanswered calls: the definition, too slow for anything but a test."""
    known = [step for step in map(effect, samples) if step is not None]
    spares = [step for step in map(spare, samples) if step is not None]
    for count in range(len(spares) + 1):
        for chosen in itertools.combinations(spares, count):
            for order in itertools.permutations([*known, *chosen]):
                timely = all(
                    later.span.end >= earlier.span.begin
                    for earlier, later in itertools.combinations(order, 2)
                )
                states = [False, *(step.left for step in order)]
                if timely and states[-1] == present and _finds(order, states):
                    return True
    return False


def _finds(order: Sequence[object], states: list[bool]) -> bool:
    """Unanswered calls may come too late to change anything, so only answers must find what they say."""
    return all(state == step.found for state, step in zip(states, order, strict=False))  # type: ignore[attr-defined]


def test_fits_agrees_with_trying_all_orders() -> None:
    rng = seeded(1)
    verdicts = {True: 0, False: 0}
    for _ in range(1500):
        samples = []
        for _ in range(rng.randint(1, 5)):
            sent = rng.uniform(0, 4)
            finished = sent + rng.uniform(0.1, 3)
            if rng.random() < 0.5:
                samples.append(sample(rng.choice((204, 404, 0)), sent, finished, "revoke"))
            else:
                samples.append(sample(rng.choice((201, 201, 200, 409, 0)), sent, finished))
        present = rng.random() < 0.5
        expected = fits_by_trying_all(samples, present)
        assert fits(samples, present) == expected, samples
        verdicts[expected] += 1
    assert min(verdicts.values()) > 200, "both verdicts must have been tried"


def test_a_service_that_keeps_its_promises_is_never_accused() -> None:
    rng = seeded(2)
    for _ in range(1500):
        told = truthful(rng, rng.randint(1, 25))
        assert list(check_user(1, by_device(told.samples), told.rows, LIMIT)) == [], told


def test_each_lie_about_a_row_of_a_calm_history_is_found() -> None:
    rng = seeded(3)
    for _ in range(300):
        told = truthful(rng, rng.randint(4, 20))
        devices = by_device(told.samples)
        for device, samples in devices.items():
            if any(one.uncertain for one in samples):
                continue  # an unanswered call explains either row
            row_is_there = device in told.rows
            lie = [d for d in told.rows if d != device] if row_is_there else [*told.rows, device]
            kinds = {violation.kind for violation in check_user(1, devices, lie, LIMIT + 1)}
            assert kinds & {"lost_device", "row_after_revoke", "row_without_201"}, (device, told)


@pytest.mark.parametrize(
    ("samples", "present"),
    [
        pytest.param(
            [sample(201, 0, 1), sample(204, 0.5, 2, "revoke")], False, id="revoked while registering"
        ),
        pytest.param([sample(201, 0, 2), sample(404, 0.5, 1, "revoke")], True, id="revoke came first"),
        pytest.param(
            [sample(201, 0, 3), sample(204, 0, 3, "revoke"), sample(201, 0, 3)], True, id="three at once"
        ),
        pytest.param(
            [sample(201, 0, 1), sample(0, 0, 9, "revoke")], False, id="unanswered revoke took effect"
        ),
        pytest.param([sample(201, 0, 1), sample(0, 0, 9, "revoke")], True, id="unanswered revoke did not"),
        pytest.param([sample(503, 0, 1), sample(200, 2, 3)], True, id="503 had registered it"),
    ],
)
def test_what_an_order_explains_is_no_violation(samples: list[Sample], present: bool) -> None:
    assert fits(samples, present)


@pytest.mark.parametrize(
    ("samples", "present"),
    [
        pytest.param([sample(201, 0, 1)], False, id="lost"),
        pytest.param([sample(201, 0, 1), sample(204, 2, 3, "revoke")], True, id="not revoked"),
        pytest.param([sample(201, 0, 1), sample(201, 2, 3)], True, id="201 twice"),
        pytest.param([sample(409, 0, 1)], True, id="refused, yet there"),
        pytest.param([sample(200, 0, 1)], True, id="200 of nothing"),
        pytest.param(
            [sample(404, 2, 3, "revoke"), sample(201, 0, 1)], True, id="404 of a device that is there"
        ),
    ],
)
def test_what_no_order_explains_is_found(samples: list[Sample], present: bool) -> None:
    assert not fits(samples, present)


def test_devices_that_may_have_followed_one_another_are_not_held_at_once() -> None:
    revoked = [sample(201, 0, 1, device="a"), sample(204, 2, 4, "revoke", device="a")]
    assert most_held_for_certain([revoked, [sample(201, 3, 5, device="b")]]) == 1


def test_devices_held_at_once_are_counted_although_revoked_later() -> None:
    devices = [[sample(201, 0, 1, device=d), sample(204, 5, 6, "revoke", device=d)] for d in "abc"]
    assert most_held_for_certain(devices) == 3


def test_refusal_is_explained_by_a_revoke_under_way() -> None:
    first = [sample(201, 0, 1, device="a"), sample(204, 2, 6, "revoke", device="a")]
    second = [sample(201, 0, 1, device="b")]
    assert refused_with_room([first, second, [sample(409, 3, 5, device="c")]], 2) == []


def test_refusal_after_the_revoke_was_answered_is_found() -> None:
    first = [sample(201, 0, 1, device="a"), sample(204, 2, 3, "revoke", device="a")]
    refusal = sample(409, 4, 5, device="c")
    assert refused_with_room([first, [sample(201, 0, 1, device="b")], [refusal]], 2) == [refusal]


def test_unanswered_registration_may_have_taken_the_slot() -> None:
    unanswered = [sample(0, 0, 1, device="a")]
    assert refused_with_room([unanswered, [sample(409, 4, 5, device="c")]], 1) == []
