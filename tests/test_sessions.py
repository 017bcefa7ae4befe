"""What a new connection to the database costs and says."""

import ssl

import pytest
from sqlalchemy import Engine

from app.db import Database
from app.dialects import database_clock
from app.engines import make_engine
from app.errors import DatabaseUnavailable
from app.settings import Settings, load_settings
from tests.services import ROOT_KEY

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


def test_the_pool_is_full_before_the_first_call(settings: Settings, auditor: Engine) -> None:
    database = Database(settings)
    before = sessions(auditor)
    database.open_connections()
    assert sessions(auditor) - before == settings.database_pool_size
    database.close()


def sessions(auditor: Engine) -> int:
    with auditor.connect() as connection:
        return len(connection.exec_driver_sql("SHOW PROCESSLIST").all())


def test_a_pool_without_a_database_is_left_empty(settings: Settings) -> None:
    nowhere = settings.url.set(port=1).render_as_string(hide_password=False)
    database = Database(load_settings(database_url=nowhere, root_key=ROOT_KEY))
    database.open_connections()
    with pytest.raises(DatabaseUnavailable):
        database.transact(database_clock)
    database.close()
