"""The order in which endpoints are served."""

import datetime
from collections import Counter

from app.webhooks.fairness import Candidate, choose

NOON = datetime.datetime(2026, 11, 30, 12)  # noqa: DTZ001 - as the database gives it


def minutes(number: int) -> datetime.timedelta:
    return datetime.timedelta(minutes=number)


def candidate(endpoint_id: int, in_flight: int = 0, served: int | None = 0, due: int = 0) -> Candidate:
    """`served` and `due` in minutes after noon."""
    last_served_at = None if served is None else NOON + minutes(served)
    return Candidate(endpoint_id, in_flight, last_served_at, NOON + minutes(due))


def test_the_one_with_the_fewest_in_flight_comes_first() -> None:
    assert choose([candidate(1, in_flight=1, served=-9), candidate(2, served=9)], 1, 2) == {2: 1}


def test_among_equals_the_one_that_was_served_least_recently_does() -> None:
    assert choose([candidate(1, served=2, due=-9), candidate(2, served=1, due=9)], 1, 2) == {2: 1}


def test_one_that_was_never_served_comes_before_one_that_was() -> None:
    assert choose([candidate(1, served=-9), candidate(2, served=None)], 1, 2) == {2: 1}


def test_then_the_one_whose_delivery_has_been_due_for_longest() -> None:
    assert choose([candidate(1, due=2), candidate(2, due=1)], 1, 2) == {2: 1}


def test_what_was_just_chosen_counts_as_in_flight() -> None:
    assert choose([candidate(1, served=1), candidate(2, served=2)], 3, 2) == {1: 2, 2: 1}


def test_no_endpoint_gets_more_than_the_most_in_flight() -> None:
    assert choose([candidate(1), candidate(2, in_flight=1), candidate(3, in_flight=2)], 99, 2) == {1: 2, 2: 1}


def test_no_more_are_chosen_than_are_free() -> None:
    everyone = [candidate(number) for number in range(50)]
    assert choose(everyone, 16, 2) == Counter(dict.fromkeys(range(16), 1))
    assert choose(everyone, 0, 2) == Counter()


def test_nobody_waiting_is_nobody_chosen() -> None:
    assert choose([], 16, 2) == Counter()
