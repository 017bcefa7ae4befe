"""The use cases of a quota. Each is one transaction, run by `Database.transact`, maybe more than once."""

from dataclasses import dataclass

from app.db import Tx
from app.dialects import database_clock
from app.errors import PreconditionFailed
from app.etags import Precondition
from app.events.queries import Done, Happened, append, committed_before
from app.origin import Origin
from app.quotas import queries
from app.quotas.schemas import Quota
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Limited(Done):
    """A user's quota, whose limit is the one that was asked for."""

    quota: Quota


def read_quota(tx: Tx, settings: Settings, user_id: int) -> Quota:
    """The user's quota; a user that was never seen has all of it left. Takes no lock."""
    return queries.read_quota(tx, user_id, settings.default_device_limit)


def set_limit(
    tx: Tx, settings: Settings, origin: Origin, user_id: int, limit: int | None, precondition: Precondition
) -> Limited:
    """Give the user a limit of its own, or with None the default again. Safe to call again.

    Below `used` nobody is thrown out: new devices are refused until there is room. Takes the user's lock, so
    that no registration which counted against the old limit commits after this. Raises PreconditionFailed
    (412).
    """
    queries.lock_user(tx, user_id)
    earlier: Limited | None = committed_before(tx, origin)
    if earlier is not None:
        return earlier
    before = queries.read_quota(tx, user_id, settings.default_device_limit)
    own_before = before.limit if before.source == "override" else None
    if not precondition.holds(before.revision):
        raise PreconditionFailed(before.revision)
    if limit == own_before:
        return Limited(None, before)
    queries.write_own_limit(tx, user_id, limit, before.revision + 1)
    after = queries.quota_of(before.used, limit, before.revision + 1, settings.default_device_limit)
    change = {"limit": after.limit, "source": after.source, "limit_before": before.limit}
    changed = Happened("quota.changed", user_id, database_clock(tx), data=change)
    append(tx, origin, changed)
    return Limited(changed, after)
