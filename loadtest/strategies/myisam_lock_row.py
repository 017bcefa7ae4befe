"""The lock row done right, in a lock table whose engine is MyISAM.

MyISAM knows no row locks and no transactions: `FOR UPDATE` is accepted, locks the table for that one
statement, and lets go. No error and no warning says so, which is why a service has to ask for the engine of
its tables.
"""

from loadtest.strategies import BREAKS_FOR_ALL, Caller, Devices, Need, Outcome, Phase, Strategy

DEVICES = Devices("myisam_devices")
LOCKS = "CREATE TABLE myisam_locks (user_id BIGINT PRIMARY KEY) ENGINE=MyISAM"
LOCK = "SELECT user_id FROM myisam_locks WHERE user_id = %s FOR UPDATE"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    while caller.number(LOCK, user_id) is None:
        caller.rollback()
        caller.execute("INSERT IGNORE INTO myisam_locks (user_id) VALUES (%s)", user_id)
        caller.commit()
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="myisam_lock_row",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(LOCKS,),
    seed={Phase.KNOWN: "INSERT INTO myisam_locks (user_id) VALUES (%s)"},
    breaks=BREAKS_FOR_ALL,
    needs=Need.MYISAM,
)
