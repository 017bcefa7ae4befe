"""Engines, whose connections are READ COMMITTED, and whose errors hold nothing of what callers sent."""

import math
import re

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError

from app import embedded, sessions, tracing
from app.failures import failure_of
from app.settings import Settings

# Duplicate entry, syntax error near …, incorrect values of several kinds: their text has what a caller sent.
QUOTES_VALUES = frozenset({1062, 1064, 1292, 1366, 1411, 1525, 1586})
_QUOTED = re.compile("'.*'", re.DOTALL)


def make_engine(
    settings: Settings, url: URL | None = None, *, pool_size: int, patience_seconds: int | None = None
) -> Engine:
    """An engine whose connections are READ COMMITTED, verified, and cost no round trip to check out or in.

    `url` is a node's; by default the first one's. A server that leaves a statement unanswered is given up
    after `patience_seconds`, by default one second after the longest lock wait would have ended.
    """
    url = url or settings.url
    if url.drivername == "mariadb+pymysql":
        url = url.set(drivername="mysql+pymysql")
    engine = create_engine(
        url,
        connect_args=sessions.connect_arguments(
            url, settings, patience_seconds or math.ceil(settings.lock_budget_seconds) + 1
        ),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=settings.database_pool_wait_seconds,
        pool_recycle=settings.idle_connection_seconds * 3 // 4,  # before the server's wait_timeout ends it
        pool_pre_ping=False,  # a dead connection shows by its error, and the transaction runs again
        pool_reset_on_return=None,  # Database.transact has committed or rolled back by then
        hide_parameters=True,  # what callers sent is no part of an error's text, which goes to the log
    )
    if settings.is_embedded:
        event.listen(engine, "do_connect", embedded.close_to_others)
    sessions.prepare_sessions(engine, settings)
    event.listen(engine, "handle_error", _recognise_lost_session)
    event.listen(engine, "handle_error", _hide_values)
    tracing.watch_statements(engine)
    return engine


def _hide_values(context: ExceptionContext) -> None:
    """Out of the server's own words too, for the same reason as `hide_parameters`."""
    match context.original_exception.args:
        case (int(number), str(words)) if number in QUOTES_VALUES:
            context.original_exception.args = (number, _QUOTED.sub("'…'", words))
            if context.sqlalchemy_exception is not None:  # has them as well
                message, *rest = context.sqlalchemy_exception.args
                context.sqlalchemy_exception.args = (_QUOTED.sub("'…'", message), *rest)


def _recognise_lost_session(context: ExceptionContext) -> None:
    """Have SQLAlchemy drop the connection for each error after which this server or session is of no use."""
    error = context.sqlalchemy_exception
    failure = failure_of(error) if isinstance(error, DBAPIError) else None
    if failure is not None and failure.drop_connection:
        context.is_disconnect = True
