"""When a delivery that failed is tried again: the schedule of Standard Webhooks 1.0."""

import random

# Seconds from one attempt to the next; the first is made at once. Some three days in all.
DELAYS_SECONDS = (0, 5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
MOST_ATTEMPTS = len(DELAYS_SECONDS)
# A delay is never shorter than the schedule says and at most this much longer, so that what failed together
# does not come back together.
MOST_JITTER = 0.2
# A receiver may ask for more time, not for all of it.
MOST_RETRY_AFTER_SECONDS = 86_400


def seconds_to_next_attempt(attempts: int, retry_after_seconds: float | None = None) -> float | None:
    """How long to wait after the last of `attempts` failed, in seconds; None if there is no further one.

    A receiver's Retry-After makes the wait longer, up to 24 h with its jitter, never shorter.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    jitter = random.uniform(1, 1 + MOST_JITTER)  # noqa: S311 - spreads load, guards no secret
    asked_seconds = min((retry_after_seconds or 0) * jitter, MOST_RETRY_AFTER_SECONDS)
    return max(DELAYS_SECONDS[attempts] * jitter, asked_seconds)
