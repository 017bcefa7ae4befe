"""What a new connection to the database costs and says."""

import ssl

import pytest

from app.db import make_engine
from app.settings import Settings

pytestmark = pytest.mark.locking


def test_connections_share_one_tls_context_and_read_no_certificates(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("reads the machine's certificates")

    monkeypatch.setattr(ssl, "create_default_context", refuse)
    engine = make_engine(settings, pool_size=2)
    with engine.connect() as one, engine.connect() as two:
        ids = {connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one() for connection in (one, two)}
    engine.dispose()
    assert len(ids) == 2


def test_a_session_is_read_committed_and_ends_when_it_hangs(settings: Settings) -> None:
    engine = make_engine(settings, pool_size=1)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation',"
            " 'innodb_lock_wait_timeout', 'lock_wait_timeout', 'wait_timeout', 'idle_transaction_timeout')"
        )
        said = {name: value for name, value in rows}  # noqa: C416 - dict() of rows has no type
        connection.rollback()
    engine.dispose()
    assert {said.pop("transaction_isolation", None), said.pop("tx_isolation", None)} - {None} == {
        "READ-COMMITTED"
    }
    assert said.pop("idle_transaction_timeout", "10") == "10"
    assert said == {"innodb_lock_wait_timeout": "3", "lock_wait_timeout": "3", "wait_timeout": "60"}
