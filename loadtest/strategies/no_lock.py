"""Count, then insert: what most code does first.

Callers that come together all count before any of them has inserted, so each of them finds a free place. The
transaction around the two statements does not help: it makes them happen both or neither, not alone.
"""

from loadtest.strategies import BREAKS_FOR_ALL, Caller, Devices, Outcome, Strategy

DEVICES = Devices("no_lock_devices")


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="no_lock",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    breaks=BREAKS_FOR_ALL,
    isolation="REPEATABLE READ",
)
