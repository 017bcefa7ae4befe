"""The service with the order of two users' locks taken out: transfers against each other must deadlock."""

from app.db import Tx
from app.main import create_app
from app.quotas.queries import lock_user
from app.settings import load_settings


def _lock_in_the_order_of_the_call(tx: Tx, *user_ids: int) -> None:
    """In place of the ascending order: sender first."""
    for user_id in user_ids:
        lock_user(tx, user_id)


from app.devices import changes  # noqa: E402 - beside what it loses

changes.lock_users = _lock_in_the_order_of_the_call  # type: ignore[attr-defined] # mypy: not exported from there

app = create_app(load_settings())
