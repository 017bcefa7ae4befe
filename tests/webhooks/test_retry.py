"""The schedule of attempts."""

from app.webhooks.retry import MOST_ATTEMPTS, MOST_RETRY_AFTER_SECONDS, seconds_to_next_attempt

MINUTE, HOUR = 60, 3600
SCHEDULE = [5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR]


def test_ten_attempts_are_made_and_each_waits_as_the_schedule_says_and_at_most_a_fifth_longer() -> None:
    assert MOST_ATTEMPTS == 10
    assert seconds_to_next_attempt(0) == 0
    for attempts, seconds in enumerate(SCHEDULE, start=1):
        drawn = [seconds_to_next_attempt(attempts) or 0 for _ in range(500)]
        assert seconds <= min(drawn) < max(drawn) <= 1.2 * seconds
        assert max(drawn) - min(drawn) > 0.15 * seconds, "what failed together does not come back together"


def test_after_the_tenth_attempt_there_is_none() -> None:
    assert seconds_to_next_attempt(10) is None
    assert seconds_to_next_attempt(10, retry_after_seconds=1) is None
    assert seconds_to_next_attempt(11) is None


def test_a_receiver_may_ask_for_a_longer_wait_within_bounds_and_for_no_shorter_one() -> None:
    assert 60 <= (seconds_to_next_attempt(1, 60) or 0) <= 72
    assert 300 <= (seconds_to_next_attempt(2, 60) or 0) <= 360
    assert 5 <= (seconds_to_next_attempt(1, 0) or 0) <= 6
    for asked in (22 * HOUR, MOST_RETRY_AFTER_SECONDS, 10**9):
        drawn = [seconds_to_next_attempt(1, asked) or 0 for _ in range(500)]
        assert min(asked, 24 * HOUR) <= min(drawn) <= max(drawn) <= 24 * HOUR


def test_a_receiver_that_asks_for_a_day_makes_the_last_wait_no_shorter_than_the_schedule_says() -> None:
    drawn = [seconds_to_next_attempt(9, 10**9) or 0 for _ in range(500)]
    assert 24 * HOUR <= min(drawn) < max(drawn) <= 1.2 * 24 * HOUR
