"""Which contestants take turns, and in which order."""

from collections import Counter

import pytest

from bench.errors import BadUse
from bench.plan import QUICK, Plan
from bench.scenarios import CONTESTANTS, NAMES, SCENARIOS, Scenario, chosen


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_each_contestant_runs_once_in_each_round(scenario: Scenario) -> None:
    plan = Plan(rounds=3)
    turns = list(plan.turns(scenario))
    assert [number for number, _ in turns] == sorted(number for number, _ in turns)
    assert Counter(turns) == {(number, one): 1 for number in range(3) for one in scenario.contestants}


def test_the_order_is_the_seeds_and_another_one_in_other_rounds() -> None:
    spread = SCENARIOS[0]
    turns = list(Plan(rounds=8).turns(spread))
    assert turns == list(Plan(rounds=8).turns(spread))
    assert turns != list(Plan(rounds=8, seed=2).turns(spread))
    each = len(spread.contestants)
    assert len({tuple(turns[each * n : each * (n + 1)]) for n in range(8)}) > 4


def test_a_row_is_about_contestants_of_its_scenario() -> None:
    for scenario in SCENARIOS:
        names = {one.name for one in scenario.contestants}
        for row in scenario.rows:
            assert {*row.ours, row.theirs} <= names
            # Both worker counts have a cell of their own.
            assert len({CONTESTANTS[name].workers for name in row.ours}) == len(row.ours)


def test_the_limit_of_the_filled_database_is_above_what_anybody_has() -> None:
    assert Plan().filled_limit == 10
    assert QUICK.filled_limit == 10


def test_memory_is_watched_when_it_is_asked_for() -> None:
    assert chosen(None, is_quick=False) == tuple(name for name in NAMES if name != "memory")
    assert chosen(None, is_quick=True) == NAMES
    assert chosen("all", is_quick=False) == NAMES
    assert chosen("memory", is_quick=False) == ("memory",)
    assert chosen("hot,spread-32", is_quick=False) == ("spread-32", "hot")
    with pytest.raises(BadUse, match="no scenario 'cold'"):
        chosen("hot,cold", is_quick=False)
