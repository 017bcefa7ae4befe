"""`SELECT … FOR UPDATE` on a row that nobody inserts: the code that is published most often.

Where there is no row, nothing is locked that the next caller would wait for: InnoDB locks the gap, and
locks on a gap do not exclude each other. It holds once the row is there, so a test with a user who has the
row is green.
"""

from loadtest.strategies import BREAKS_FOR_FRESH, Caller, Devices, Outcome, Phase, Strategy

DEVICES = Devices("never_made_devices")
LOCKS = "CREATE TABLE never_made_locks (user_id BIGINT PRIMARY KEY) ENGINE=InnoDB"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    caller.number("SELECT user_id FROM never_made_locks WHERE user_id = %s FOR UPDATE", user_id)
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="lock_row_never_made",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(LOCKS,),
    seed={Phase.KNOWN: "INSERT INTO never_made_locks (user_id) VALUES (%s)"},
    breaks=BREAKS_FOR_FRESH,
    isolation="REPEATABLE READ",
)
