"""The plan: decided before the run, and the same again for the same seed."""

import itertools
from collections import Counter, defaultdict

import pytest

from loadtest.errors import BadUse
from loadtest.plan import MAX_USERS, Pace, Plan, parse_mix, parse_rate, parse_seconds, race, steady

MIX = parse_mix("register=4,repeat=2,revoke=2,list=2")


def test_same_seed_gives_the_same_calls() -> None:
    first, second = (list(race(7, 5, 500, 2, MIX).sequence()) for _ in range(2))
    assert first == second
    assert first != list(race(8, 5, 500, 2, MIX).sequence())


def test_users_of_different_seeds_are_apart_and_exact_in_json() -> None:
    firsts = sorted(Plan(seed, MAX_USERS, 1, 2, MIX).first_user for seed in range(200))
    assert all(later - earlier >= MAX_USERS for earlier, later in itertools.pairwise(firsts))
    assert firsts[0] >= 2**52
    assert firsts[-1] + MAX_USERS <= 2**53


def test_the_probe_is_no_user_of_the_run() -> None:
    plan = race(3, 10, 1000, 2, MIX)
    assert plan.probe_user not in {call.user for call in plan.sequence()}


def test_mix_is_kept_and_every_user_gets_the_same_share_of_registers() -> None:
    counts = Counter(call.action for call in race(1, 1000, 20_000, 2, MIX).sequence())
    assert counts["revoke"] == pytest.approx(4000, rel=0.1)
    users = Counter(call.user for call in race(1, 4, 1000, 2, parse_mix("register=1")).sequence())
    assert set(users.values()) == {250}


def test_repeat_and_revoke_name_devices_that_are_registered_when_taken_in_order() -> None:
    held: dict[int, set[str]] = defaultdict(set)
    for call in race(5, 20, 3000, 2, MIX).sequence():
        if call.action == "register" and len(held[call.user]) < 2:
            held[call.user].add(call.device)
        elif call.action in ("repeat", "revoke"):
            assert call.device in held[call.user]
        if call.action == "revoke":
            held[call.user].remove(call.device)


def test_a_race_is_due_at_once_and_device_ids_are_never_used_twice_to_register() -> None:
    calls = [call for call in race(5, 3, 2000, 2, MIX).sequence() if call.action == "register"]
    assert {call.due for call in calls} == {0.0}
    assert len({call.device for call in calls}) == len(calls)


def test_steady_calls_are_due_at_the_rate_after_a_ramp() -> None:
    dues = [call.due for call in steady(1, 10, Pace(100, 2, 10), 2, MIX).sequence()]
    assert len(dues) == 900
    assert dues == sorted(dues)
    assert sum(due < 1 for due in dues) == pytest.approx(25, abs=1)
    assert sum(5 <= due < 6 for due in dues) == 100
    assert dues[-1] < 10


def test_rates_and_durations_are_read_with_their_units() -> None:
    assert [parse_rate(text) for text in ("300/s", "300", "18000/min")] == [300, 300, 300]
    assert [parse_seconds("--ramp", text) for text in ("60s", "2m", "500ms", "7")] == [60, 120, 0.5, 7]


@pytest.mark.parametrize("text", ["", "fast", "300/fortnight", "/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadUse, match="is not a rate"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "register", "register=-1", "delete=1", "register=0"])
def test_what_is_no_mix_is_refused(text: str) -> None:
    with pytest.raises(BadUse, match="--mix"):
        parse_mix(text)
