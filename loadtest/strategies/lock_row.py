"""The lock row as the service does it: locked first; where it is missing, made in a transaction of its own.

The lock is the first statement, so whatever is read behind it is read alone, under READ COMMITTED as it is
now. A missing row is made and committed apart and the call starts again, so no transaction inserts and
locks the same row.
"""

from loadtest.strategies import Caller, Devices, Outcome, Phase, Strategy

DEVICES = Devices("lock_row_devices")
LOCKS = "CREATE TABLE lock_row_locks (user_id BIGINT PRIMARY KEY) ENGINE=InnoDB"
LOCK = "SELECT user_id FROM lock_row_locks WHERE user_id = %s FOR UPDATE"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    while caller.number(LOCK, user_id) is None:
        caller.rollback()
        caller.execute("INSERT IGNORE INTO lock_row_locks (user_id) VALUES (%s)", user_id)
        caller.commit()
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="lock_row",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(LOCKS,),
    seed={Phase.KNOWN: "INSERT INTO lock_row_locks (user_id) VALUES (%s)"},
)
