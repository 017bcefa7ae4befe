"""No lock of one's own: the same two statements under SERIALIZABLE.

Every plain read takes a shared lock on what it read, so two callers that counted the same user cannot both
insert. They wait for each other instead, the server kills one of them (1213), and it starts again: correct,
and paid for in retries.
"""

from loadtest.strategies import Caller, Devices, Outcome, Strategy

DEVICES = Devices("serializable_devices")


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="serializable",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    isolation="SERIALIZABLE",
)
