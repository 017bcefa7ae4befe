"""A plain read before the lock, under MySQL's default REPEATABLE READ.

The first plain read fixes what the whole transaction sees. The lock is then waited for and taken as it
should be, but the count behind it still shows the devices as they were before the wait.
"""

from loadtest.strategies import BREAKS_FOR_ALL, Caller, Devices, Outcome, Phase, Strategy

DEVICES = Devices("late_lock_devices")
LOCKS = "CREATE TABLE late_lock_locks (user_id BIGINT PRIMARY KEY) ENGINE=InnoDB"
QUOTAS = "CREATE TABLE late_lock_quotas (user_id BIGINT PRIMARY KEY, device_limit INT NOT NULL) ENGINE=InnoDB"
READ_QUOTA = "SELECT device_limit FROM late_lock_quotas WHERE user_id = %s"
LOCK = "SELECT user_id FROM late_lock_locks WHERE user_id = %s FOR UPDATE"
MAKE_LOCK_ROW = "INSERT IGNORE INTO late_lock_locks (user_id) VALUES (%s)"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    limit = caller.number(READ_QUOTA, user_id) or limit
    while caller.number(LOCK, user_id) is None:
        caller.rollback()
        caller.execute(MAKE_LOCK_ROW, user_id)
        caller.commit()
        limit = caller.number(READ_QUOTA, user_id) or limit
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="repeatable_read_late_lock",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(LOCKS, QUOTAS),
    seed={Phase.KNOWN: "INSERT INTO late_lock_locks (user_id) VALUES (%s)"},
    breaks=BREAKS_FOR_ALL,
    isolation="REPEATABLE READ",
)
