"""`INSERT IGNORE` the lock row, then `SELECT … FOR UPDATE` it, in one transaction.

Nobody passes the limit. But an INSERT IGNORE that finds the row takes a shared lock on it, which several
callers hold at once, and then each wants it for itself: a deadlock by construction, solved by killing all
but one, again and again.
"""

from loadtest.strategies import Caller, Devices, Outcome, Phase, Strategy

DEVICES = Devices("insert_ignore_devices")
LOCKS = "CREATE TABLE insert_ignore_locks (user_id BIGINT PRIMARY KEY) ENGINE=InnoDB"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    caller.execute("INSERT IGNORE INTO insert_ignore_locks (user_id) VALUES (%s)", user_id)
    caller.number("SELECT user_id FROM insert_ignore_locks WHERE user_id = %s FOR UPDATE", user_id)
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="insert_ignore_lock_row",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(LOCKS,),
    seed={Phase.KNOWN: "INSERT INTO insert_ignore_locks (user_id) VALUES (%s)"},
)
