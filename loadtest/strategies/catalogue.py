"""All strategies, in the order of the table: first the wrong ones, then with Redis, then without."""

from loadtest.strategies import (
    Strategy,
    conditional_counter,
    insert_ignore_lock_row,
    lock_row,
    lock_row_never_made,
    myisam_lock_row,
    no_lock,
    redis_lock,
    redis_lock_fenced,
    repeatable_read_late_lock,
    serializable,
    users_row,
)

STRATEGIES: tuple[Strategy, ...] = (
    no_lock.STRATEGY,
    lock_row_never_made.STRATEGY,
    repeatable_read_late_lock.STRATEGY,
    myisam_lock_row.STRATEGY,
    redis_lock.STRATEGY,
    redis_lock.PAUSED,
    redis_lock_fenced.STRATEGY,
    redis_lock_fenced.PAUSED,
    serializable.STRATEGY,
    users_row.STRATEGY,
    conditional_counter.STRATEGY,
    insert_ignore_lock_row.STRATEGY,
    lock_row.STRATEGY,
)
BY_NAME = {strategy.name: strategy for strategy in STRATEGIES}
