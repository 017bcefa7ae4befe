"""The service with its protection taken out: the tests of the races must fail against it."""

from app.db import Tx
from app.main import create_app
from app.quotas import queries
from app.settings import load_settings


def _lock_nobody(tx: Tx, user_id: int) -> None:
    """In place of `SELECT … FOR UPDATE`."""


queries.lock_user = _lock_nobody
# devices.service has its own name for it.
from app.devices import changes, service  # noqa: E402 - after the lock was taken out

service.lock_user = _lock_nobody  # type: ignore[attr-defined] # mypy: not exported from there
changes.lock_user = _lock_nobody  # type: ignore[attr-defined] # likewise

app = create_app(load_settings())
