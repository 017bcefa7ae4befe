"""The live proof that a lock holds others back, on which the limit rests."""

import sqlite3

from sqlalchemy import select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from app.errors import Contention
from app.failures import failure_of
from app.quotas.queries import insert_lock_row
from app.tables import device_registration_locks as locks

# No user has this id, so the proof of the lock disturbs nobody.
NOBODY = 0


def row_lock_blocks(connection: Connection) -> bool:
    """Whether a second connection is refused the lock that the first one holds."""
    return _sqlite_blocks(connection) if connection.dialect.name == "sqlite" else _mysql_blocks(connection)


def _mysql_blocks(connection: Connection) -> bool:
    lock = select(locks.c.user_id).where(locks.c.user_id == NOBODY)
    insert_lock_row(connection, NOBODY)
    connection.commit()
    connection.execute(lock.with_for_update()).one()
    with connection.engine.connect() as rival:
        try:
            rival.execute(lock.with_for_update(nowait=True)).all()
        except DBAPIError as error:
            failure = failure_of(error)
            return failure is not None and failure.answer is Contention
        finally:
            rival.rollback()
    return False


def _sqlite_blocks(connection: Connection) -> bool:
    connection.exec_driver_sql("SELECT 1")  # the connection's transaction begins, IMMEDIATE
    rival = sqlite3.connect(connection.engine.url.database or "", timeout=0, isolation_level=None)
    try:
        rival.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode == sqlite3.SQLITE_BUSY
    finally:
        rival.close()
    return False
