"""A counter per user that is raised only while it is below the limit, decided by the rows affected.

The UPDATE tests and raises in one statement under one row lock, so no two callers get the same place. But
the counter is a second truth beside the devices: every path that adds or removes one has to keep both, or
they drift apart.
"""

from loadtest.strategies import Caller, Devices, Outcome, Phase, Strategy

DEVICES = Devices("counter_devices")
COUNTERS = (
    "CREATE TABLE counter_counters (user_id BIGINT PRIMARY KEY, used INT NOT NULL DEFAULT 0) ENGINE=InnoDB"
)
TAKE_PLACE = "UPDATE counter_counters SET used = used + 1 WHERE user_id = %s AND used < %s"
MAKE_COUNTER = "INSERT IGNORE INTO counter_counters (user_id) VALUES (%s)"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    took_place = caller.execute(TAKE_PLACE, user_id, limit)
    if (
        not took_place
        and caller.number("SELECT used FROM counter_counters WHERE user_id = %s", user_id) is None
    ):
        caller.rollback()
        caller.execute(MAKE_COUNTER, user_id)
        caller.commit()
        took_place = caller.execute(TAKE_PLACE, user_id, limit)
    # Behind the UPDATE, which made identical calls wait for each other: asked before it, both would insert.
    if caller.number(DEVICES.known, user_id, device_id):
        caller.rollback()
        return Outcome.KNOWN
    if not took_place:
        caller.rollback()
        return Outcome.REFUSED
    caller.execute(DEVICES.insert, user_id, device_id)
    caller.commit()
    return Outcome.REGISTERED


STRATEGY = Strategy(
    name="conditional_counter",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(COUNTERS,),
    seed={Phase.KNOWN: "INSERT INTO counter_counters (user_id) VALUES (%s)"},
)
