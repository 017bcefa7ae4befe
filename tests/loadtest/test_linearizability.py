"""The checker of histories against hand-made ones, and against trying every order."""

import itertools
import time

import pytest

from loadtest.linearizability import Operation, Quota, check
from loadtest.linearizability.model import State, footprint, may_wait, step
from loadtest.linearizability.search import Search
from tests.loadtest.histories import seeded
from tests.loadtest.lies import LIES, Lie, has_an_order
from tests.loadtest.told import LIMIT, quota, register, revoke, seen, set_limit, truthful

HISTORY_SECONDS = 60


def holds(operations: list[Operation], limit: int = LIMIT) -> bool:
    found = check(operations, limit)
    assert not found.undecided
    return not found.violations


def lost(operation: Operation) -> Operation:
    """The call without an answer."""
    return operation._replace(status=0, code="timeout")


def judged(operations: list[Operation]) -> list[Operation]:
    """What the judge knows: answers of the contract that are about the user's devices, and none at all."""
    return [one for one in operations if one.status not in (401, 429, 503) and "key" not in one.code]


FULL = [register("a", 0, 1), register("b", 0, 1)]


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([], id="nothing"),
        pytest.param([*FULL, seen("ab", 2, 3), seen("ba", 2, 3)], id="a list has no order"),
        pytest.param([register("a", 0, 1), register("a", 2, 3, 200), quota(1, 2, 4, 5)], id="repeated"),
        pytest.param([*FULL, register("a", 2, 3, 200)], id="repeated at the limit"),
        pytest.param([*FULL, register("c", 2, 3, 409)], id="refused"),
        pytest.param([*FULL, register("c", 2, 5, 201), revoke("a", 3, 4)], id="room made meanwhile"),
        pytest.param([*FULL, register("c", 3, 4, 409), revoke("a", 2, 5)], id="not yet revoked"),
        pytest.param([register("a", 0, 3), seen("", 1, 2)], id="looked before"),
        pytest.param([register("a", 0, 3), seen("a", 1, 2)], id="looked after"),
        pytest.param([register("a", 0, 9), register("a", 0, 9), revoke("a", 0, 9)], id="three at once"),
        pytest.param(
            [*FULL, register("c", 2, 3, replaced="a"), seen("bc", 4, 5)], id="replaced at the limit"
        ),
        pytest.param(
            [register("a", 0, 1), register("b", 2, 3, 404, replaced="c"), seen("a", 4, 5)],
            id="nothing there to replace",
        ),
        pytest.param(
            [*FULL, register("b", 2, 3, 200, replaced="a"), seen("ab", 4, 5)], id="there: nothing replaced"
        ),
        pytest.param(
            [*FULL, set_limit(0, 2, 3), register("c", 4, 5, 409, replaced="a"), seen("ab", 6, 7)],
            id="no room even when one goes",
        ),
        pytest.param(
            [
                *(*FULL, set_limit(1, 2, 3), seen("ab", 4, 5), quota(2, 1, 4, 5), revoke("a", 6, 7)),
                *(register("a", 8, 9, 409), set_limit(None, 10, 11), register("a", 12, 13)),
            ],
            id="nobody is thrown out by a lower limit",
        ),
        pytest.param([lost(register("a", 0, 1)), seen("", 2, 3), seen("a", 4, 5)], id="effect came late"),
        pytest.param([lost(register("a", 0, 1)), register("a", 2, 3), seen("a", 4, 5)], id="never came"),
        pytest.param(
            [register("a", 0, 1), lost(revoke("a", 2, 3)), seen("a", 4, 5)], id="revoked after the end"
        ),
        pytest.param(
            [*FULL, lost(register("c", 2, 3, replaced="a")), register("a", 4, 5, 409), seen("bc", 6, 7)],
            id="replaced without an answer",
        ),
        pytest.param(
            [lost(set_limit(1, 0, 1)), *FULL, register("c", 2, 3, 409)], id="limit of unknown outcome"
        ),
        pytest.param([*FULL, lost(register("c", 2, 3)), register("d", 4, 5, 503)], id="503 is no answer"),
        pytest.param([register("a", 0, 1), seen("", 1, 2)], id="sent at the instant of the other's answer"),
        pytest.param([seen("zzz", 0, 1)._replace(status=0, code="timeout")], id="a look without an answer"),
        pytest.param([register("a", 0, 1, 429), register("a", 2, 3, 401)], id="refused for other reasons"),
        pytest.param(
            [register("a", 0, 1), register("b", 1, 2, 409, code="idempotency_key_in_use")], id="another 409"
        ),
    ],
)
def test_what_an_order_explains_is_no_violation(operations: list[Operation]) -> None:
    assert has_an_order(judged(operations), LIMIT)
    assert holds(operations)


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([*FULL, register("c", 0, 1)], id="three at limit 2"),
        pytest.param([*FULL, register("c", 2, 3), revoke("a", 4, 5)], id="over the limit for a while"),
        pytest.param(
            [*FULL, revoke("a", 2, 5), register("c", 2, 5), register("a", 2, 5)], id="one revoke, two in"
        ),
        pytest.param([register("a", 0, 1), seen("", 2, 3)], id="acknowledged and lost"),
        pytest.param([register("a", 0, 1), seen("a", 2, 3), seen("", 4, 5)], id="lost later"),
        pytest.param([register("a", 0, 9), seen("a", 1, 2), seen("", 3, 4)], id="read, then unread"),
        pytest.param([*FULL, revoke("a", 2, 3), seen("ab", 4, 5)], id="a stale read"),
        pytest.param([*FULL, revoke("a", 2, 3), seen("b", 4, 5), seen("ab", 6, 7)], id="rose again"),
        pytest.param([register("a", 0, 1), register("b", 2, 3, 409)], id="refused with room"),
        pytest.param([*FULL, register("c", 2, 3, 409), seen("abc", 4, 5)], id="refused and there"),
        pytest.param([register("a", 0, 1), register("a", 2, 3)], id="registered twice"),
        pytest.param([register("a", 0, 1), revoke("a", 2, 3), revoke("a", 2, 3)], id="revoked twice"),
        pytest.param([register("a", 0, 1, 200)], id="repeated what never was"),
        pytest.param([register("a", 0, 1), revoke("a", 2, 3, 404)], id="404 of what is there"),
        pytest.param([*FULL, register("c", 2, 3, replaced="a"), seen("abc", 4, 5)], id="replaced and kept"),
        pytest.param(
            [register("a", 0, 1), register("b", 2, 3, 201, replaced="c")], id="replaced what was not there"
        ),
        pytest.param([register("a", 0, 1, 404)], id="404 that says nothing"),
        pytest.param(
            [register("a", 0, 1), register("b", 2, 9, replaced="a"), seen("ab", 3, 4)], id="both at once"
        ),
        pytest.param(
            [register("a", 0, 1), register("b", 2, 9, replaced="a"), seen("", 3, 4)], id="neither of them"
        ),
        pytest.param([*FULL, set_limit(1, 2, 3), seen("a", 4, 5)], id="thrown out by a lower limit"),
        pytest.param([set_limit(1, 0, 1), register("a", 2, 3), register("b", 4, 5)], id="past a lower limit"),
        pytest.param([register("a", 0, 1), quota(2, 2, 2, 3)], id="quota of one too many"),
        pytest.param([quota(0, 3, 0, 1)], id="quota of another limit"),
        pytest.param([register("a", 0, 1, quota=Quota(2, 2))], id="wrong quota beside the device"),
        pytest.param(
            [*FULL, register("c", 2, 3, 409, quota=Quota(1, 2))], id="wrong quota beside the refusal"
        ),
        pytest.param([register("a", 0, 1), seen("aa", 2, 3)], id="a list with a device twice"),
        pytest.param([seen("a", 0, 1), lost(register("a", 2, 3))], id="effect before it was sent"),
        pytest.param([lost(register("a", 0, 1)), seen("a", 2, 3), seen("", 4, 5)], id="effect came and went"),
        pytest.param(
            [lost(register("a", 0, 1)), seen("a", 2, 3), revoke("a", 4, 5), seen("a", 6, 7)],
            id="effect came twice",
        ),
        pytest.param(
            [register("a", 0, 1, 503, code="contention"), seen("a", 2, 3)], id="503 that promised nothing"
        ),
        pytest.param([register("a", 0, 1, 202)], id="an answer that the contract has not"),
    ],
)
def test_what_no_order_explains_is_found(operations: list[Operation]) -> None:
    assert not has_an_order(judged(operations), LIMIT)
    assert not holds(operations)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_error_may_have_had_its_effect_or_not(status: int) -> None:
    failed = register("a", 0, 1, status)
    assert holds([failed, seen("", 2, 3), seen("a", 4, 5)])
    assert holds([failed, seen("", 2, 3)])


def test_other_users_are_no_explanation() -> None:
    operations = [register("a", 0, 1), seen("", 2, 3)]
    others = [register("b", 0, 1)._replace(user=2), seen("b", 2, 3)._replace(user=2)]
    assert [one.user for one in check([*operations, *others], LIMIT).violations] == [1]


def test_truthful_histories_are_never_accused() -> None:
    rng = seeded(1)
    for _ in range(800):
        limit = rng.randint(0, 4)
        share = rng.choice((0, 0.05, 0.15))
        told = truthful(rng, rng.randint(1, 40), processes=rng.randint(1, 8), limit=limit, unknown=share)
        assert holds(told, limit), told


def test_search_agrees_with_trying_every_order() -> None:
    rng = seeded(2)
    verdicts = {True: 0, False: 0}
    for _ in range(3000):
        limit, share = rng.randint(0, 3), rng.choice((0, 0.2, 0.4))
        told = truthful(rng, rng.randint(2, 6), processes=4, devices="abc", limit=limit, unknown=share)
        if rng.random() < 0.5:
            told = [one if one.kind == "quota" else one._replace(quota=None) for one in told]
        for _ in range(rng.choice((0, 1, 1, 2))):
            told = rng.choice(LIES)(rng, told)
        expected = has_an_order(told, limit)
        assert (Search(told, State(frozenset(), limit)).run() is None) == expected, (limit, told)
        verdicts[expected] += 1
    assert min(verdicts.values()) > 1000, "both verdicts must have been tried"


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_every_planted_violation_is_found(lie: Lie) -> None:
    """Planted is what trying every order finds to have none: not every lie is one that can be told."""
    rng = seeded(3)
    planted = found = 0
    while planted < 150:
        told = lie(rng, truthful(rng, rng.randint(4, 8), processes=3, devices="abc", unknown=0.1))
        if not has_an_order(told, LIMIT):
            planted += 1
            found += not holds(told)
    assert found == planted


def test_calls_that_may_wait_may_really_wait() -> None:
    """All pairs of calls at all states of three devices."""
    names = ("a", "b", "c")
    asked = [register(d, 0, 1, status) for d in names[:2] for status in (0, 200, 201, 409)]
    asked += [revoke(d, 0, 1, status) for d in names[:2] for status in (0, 204, 404)]
    asked += [register("a", 0, 1, s, replaced="b") for s in (0, 200, 201, 404, 409)]
    asked += [register("c", 0, 1, s, replaced="a") for s in (0, 201)]
    asked += [set_limit(n, 0, 1, s) for n in (1, 2) for s in (0, 200)]
    sets = [frozenset(some) for n in range(4) for some in itertools.combinations(names, n)]
    asked += [seen("".join(sorted(some)), 0, 1) for some in sets]
    asked += [quota(used, limit, 0, 1) for used in range(4) for limit in range(4)]
    asked += [register("b", 0, 1, 201, quota=Quota(used, 3)) for used in range(1, 4)]
    states = [State(some, limit) for some in sets for limit in range(5)]
    after = {(s, n): step(s, one, 9) for s in states for n, one in enumerate(asked)}
    waited = 0
    for first, second in itertools.permutations(range(len(asked)), 2):
        if not may_wait(footprint(asked[first]), footprint(asked[second])):
            continue
        for state in states:
            between = after[state, first]
            reached = None if between is None else after[between, second]
            if reached is not None:
                other = after[state, second]
                assert other is not None, (state, asked[first], asked[second])
                assert after[other, first] == reached, (state, asked[first], asked[second])
                waited += 1
    assert waited > 2000, "and not because none may"


def test_what_takes_too_long_is_no_pass() -> None:
    told = truthful(seeded(4), 60, processes=8, unknown=0.2)
    found = check(told, LIMIT, most_steps=5)
    assert (found.violations, found.undecided) == ((), (1,))


def test_work_is_bounded() -> None:
    search = Search(truthful(seeded(4), 100), State(frozenset(), LIMIT))
    before = search.steps_left
    assert search.run() is None
    assert 0 < before - search.steps_left < 100_000


@pytest.mark.slow
def test_100_000_operations_are_checked_in_a_minute() -> None:
    """500 users, ten clients at once on each, one call of twenty without an answer."""
    rng = seeded(5)
    told = [
        one
        for user in range(500)
        for one in truthful(rng, 199, user=user, processes=10, devices="abcdefgh", limit=3)
    ]
    assert len(told) == 100_000
    began = time.perf_counter()
    found = check(told, limit=3)
    took = time.perf_counter() - began
    assert (found.violations, found.undecided) == ((), ())
    assert took <= HISTORY_SECONDS
