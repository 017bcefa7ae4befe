"""The service with its protection taken out: the tests of the races must fail against it."""

from collections.abc import Iterable

from app.db import Tx
from app.main import create_app
from app.quotas import queries
from app.settings import load_settings


def _lock_nobody(tx: Tx, user_id: int) -> None:
    """In place of `SELECT … FOR UPDATE`."""


def _call_all_locked(tx: Tx, user_ids: Iterable[int]) -> set[int]:  # noqa: ARG001 - as it is called
    """In place of `SELECT … FOR UPDATE SKIP LOCKED`."""
    return set(user_ids)


queries.lock_user = _lock_nobody
# Those who use them have names of their own for them.
from app.devices import changes, group_service, service  # noqa: E402 - after the lock was taken out

service.lock_user = _lock_nobody  # type: ignore[attr-defined] # mypy: not exported from there
changes.lock_user = _lock_nobody  # type: ignore[attr-defined] # likewise
group_service.lock_users_if_free = _call_all_locked  # type: ignore[attr-defined] # likewise

app = create_app(load_settings())
