"""The statements about kept answers."""

from dataclasses import dataclass

from sqlalchemy import and_, delete, insert, select
from sqlalchemy.sql.elements import ColumnElement

from app.db import Tx
from app.dialects import database_clock, seconds_from_now
from app.tables import idempotency_keys as keys


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call was answered with; `request_digest` says which call."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer, and the request that it was given to."""

    answer: Answer
    request_digest: bytes
    is_fresh: bool


def find_answer(tx: Tx, scope_digest: bytes, of_user: int | None, keep_seconds: int) -> Kept | None:
    fresh = (keys.c.answered_at > seconds_from_now(-keep_seconds)).label("is_fresh")
    query = select(keys.c.status, keys.c.headers, keys.c.body, keys.c.request_digest, fresh)
    row = tx.execute(query.where(_is(scope_digest, of_user))).one_or_none()
    if row is None:
        return None
    return Kept(Answer(row.status, row.headers, row.body), row.request_digest, bool(row.is_fresh))


def keep_answer(tx: Tx, user_id: int, scope_digest: bytes, request_digest: bytes, answer: Answer) -> None:
    """Keep the answer until it is too old, or until the user is erased, of whom it tells."""
    row = {
        "user_id": user_id,
        "scope_digest": scope_digest,
        "request_digest": request_digest,
        "answered_at": database_clock(tx),
        "status": answer.status,
        "headers": answer.headers,
        "body": answer.body,
    }
    tx.execute(insert(keys), row)


def forget_answer(tx: Tx, scope_digest: bytes, of_user: int | None) -> None:
    tx.execute(delete(keys).where(_is(scope_digest, of_user)))


def _is(scope_digest: bytes, of_user: int | None) -> ColumnElement[bool]:
    """The digest alone finds it. The user tells a database that is sharded by users where to look."""
    found = keys.c.scope_digest == scope_digest
    return found if of_user is None else and_(found, keys.c.user_id == of_user)


def forget_old_answers(tx: Tx, keep_seconds: int, limit: int) -> int:
    """Delete up to `limit` answers that are older, and say how many. Reads `idempotency_keys_by_age`."""
    query = select(keys.c.scope_digest, keys.c.answered_at)
    old = tx.execute(
        query.where(keys.c.answered_at <= seconds_from_now(-keep_seconds))
        .order_by(keys.c.answered_at, keys.c.scope_digest)
        .limit(limit)
    ).all()
    gone = 0
    for scope_digest, answered_at in old:
        one = delete(keys).where(keys.c.scope_digest == scope_digest)
        # Its rival is a call that has taken the key anew since.
        gone += tx.execute(one.where(keys.c.answered_at == answered_at)).rowcount
    return gone
