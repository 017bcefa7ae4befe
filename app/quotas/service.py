"""What can be asked about a quota."""

from app.db import Tx
from app.quotas import queries
from app.quotas.schemas import Quota


def read_quota(tx: Tx, user_id: int, default_limit: int) -> Quota:
    """The user's quota; a user that was never seen has all of it left. Takes no lock."""
    return Quota(limit=default_limit, used=queries.count_devices(tx, user_id))
