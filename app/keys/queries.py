"""The statements about API keys."""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, or_, select, tuple_, update

from app.auth.scopes import SCOPES, Scope
from app.db import Tx
from app.dialects import seconds_from_now, utc_now
from app.keys.schemas import ApiKey
from app.tables import api_keys as keys


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What a call is checked against, as of `at` by the database's clock."""

    id: str
    digest: bytes
    scopes: frozenset[Scope]
    at: datetime.datetime
    expires_at: datetime.datetime | None
    last_used_at: datetime.datetime | None
    is_revoked: bool


def insert_key(tx: Tx, key: ApiKey, digest: bytes) -> None:
    row = {name: getattr(key, name) for name in _COLUMNS}
    tx.execute(insert(keys), row | {"scopes": " ".join(key.scopes), "digest": digest})


def stored_keys(tx: Tx, ids: Collection[str]) -> list[StoredKey]:
    """Those of the keys that are there, in one statement however many are asked for."""
    query = select(
        *(keys.c.id, keys.c.digest, keys.c.scopes, keys.c.expires_at, keys.c.last_used_at),
        keys.c.revoked_at.is_not(None).label("is_revoked"),
        utc_now().label("at"),
    ).where(keys.c.id.in_(ids))
    return [
        StoredKey(
            id=row.id,
            digest=row.digest,
            scopes=frozenset(_scopes(row.scopes)),
            at=row.at,
            expires_at=row.expires_at,
            last_used_at=row.last_used_at,
            is_revoked=bool(row.is_revoked),
        )
        for row in tx.execute(query)
    ]


def find_key(tx: Tx, key_id: str) -> ApiKey | None:
    row = tx.execute(select(*_COLUMNS.values()).where(keys.c.id == key_id)).one_or_none()
    return None if row is None else _key(row)


def list_keys(tx: Tx, before: tuple[datetime.datetime, str] | None, limit: int) -> Sequence[ApiKey]:
    """At most `limit` keys, newest first, from `before` on. Reads `api_keys_by_age` backwards."""
    query = select(*_COLUMNS.values())
    if before is not None:
        query = query.where(tuple_(keys.c.created_at, keys.c.id) < before)
    page = query.order_by(keys.c.created_at.desc(), keys.c.id.desc()).limit(limit)
    return [_key(row) for row in tx.execute(page)]


def revoke_if_not_yet(tx: Tx, key_id: str, actor: str) -> bool:
    """Whether this call has done it. Its rival is another revocation, whose instant must stay."""
    revoked = update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None))
    return tx.execute(revoked.values(revoked_at=utc_now(), revoked_by=actor)).rowcount == 1


def note_uses(tx: Tx, ids: Collection[str], every_seconds: int) -> None:
    """`last_used_at` = now, unless another process wrote it within `every_seconds`."""
    is_due = or_(keys.c.last_used_at.is_(None), keys.c.last_used_at <= seconds_from_now(-every_seconds))
    tx.execute(update(keys).where(keys.c.id.in_(ids), is_due).values(last_used_at=utc_now()))


def _scopes(text: str) -> list[Scope]:
    """In their own order. One that only a later version knows lets nobody do anything here."""
    given = text.split()
    return [scope for scope in SCOPES if scope in given]


def _key(row: Row[Any]) -> ApiKey:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return ApiKey.model_construct(**values | {"scopes": _scopes(row.scopes)})


_COLUMNS = {name: keys.c[name] for name in ApiKey.model_fields}
