"""Lock the users table's own row: where one may not, or need not, add a lock table.

The row is there from the day the user signed up, so there is always something to lock, and whoever comes
second waits. The price is that everything else that writes that row (a last login, a new name) waits behind
registrations too.
"""

from loadtest.strategies import Caller, Devices, Outcome, Phase, Strategy

DEVICES = Devices("users_row_devices")
USERS = "CREATE TABLE users_row_users (user_id BIGINT PRIMARY KEY, name VARCHAR(64)) ENGINE=InnoDB"
SIGN_UP = "INSERT INTO users_row_users (user_id) VALUES (%s)"


def register(caller: Caller, user_id: int, device_id: str, limit: int) -> Outcome:
    if caller.number("SELECT user_id FROM users_row_users WHERE user_id = %s FOR UPDATE", user_id) is None:
        caller.rollback()
        return Outcome.REFUSED  # not a user: a row made here would be an account that nobody opened
    outcome = DEVICES.count_then_insert(caller, user_id, device_id, limit)
    caller.commit()
    return outcome


STRATEGY = Strategy(
    name="users_row",
    doc=__doc__,
    devices=DEVICES,
    register=register,
    tables=(USERS,),
    seed={Phase.FRESH: SIGN_UP, Phase.KNOWN: SIGN_UP},
)
