"""Making and revoking keys. The cache that serves calls is `app.auth.known_keys`."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from app.auth.errors import ScopeNotHeld
from app.auth.scopes import SCOPES, Scope
from app.db import Tx, uncertain_result
from app.dialects import database_clock
from app.errors import ApiKeyNotFound
from app.keys import queries
from app.keys.schemas import ApiKey
from app.keys.token import Token


@dataclass(frozen=True, slots=True)
class Giver:
    """Who makes a key, and what they may do themselves."""

    actor: str
    scopes: frozenset[Scope]


# Whoever runs the command has the database itself.
CLI = Giver("cli", frozenset(SCOPES))


@dataclass(frozen=True, slots=True)
class Grant:
    """What a new key is to be. It ends after a while, at an instant (UTC), or never."""

    name: str
    scopes: frozenset[Scope]
    end: datetime.timedelta | datetime.datetime | None = None


def create(tx: Tx, giver: Giver, token: Token, grant: Grant) -> ApiKey:
    """Make the key. Safe to call again with the same `token`.

    Raises ScopeNotHeld (403): nobody gives what they do not have.
    """
    missing = [scope for scope in SCOPES if scope in grant.scopes - giver.scopes]
    if missing:
        raise ScopeNotHeld(missing)
    made: ApiKey | None = uncertain_result(tx) and queries.find_key(tx, token.id)
    if made:
        return made
    at = database_clock(tx)
    key = ApiKey.model_construct(
        id=token.id,
        name=grant.name,
        scopes=[scope for scope in SCOPES if scope in grant.scopes],
        created_at=at,
        created_by=giver.actor,
        expires_at=at + grant.end if isinstance(grant.end, datetime.timedelta) else grant.end,
        last_used_at=None,
        revoked_at=None,
        revoked_by=None,
    )
    queries.insert_key(tx, key, token.digest)
    return key


def read(tx: Tx, key_id: str) -> ApiKey:
    """The key, revoked or not. Raises ApiKeyNotFound (404)."""
    key = queries.find_key(tx, key_id)
    if key is None:
        raise ApiKeyNotFound(key_id)
    return key


def list_keys(tx: Tx, before: tuple[datetime.datetime, str] | None, limit: int) -> Sequence[ApiKey]:
    """Up to `limit` keys, newest first, revoked ones too. Takes no lock."""
    return queries.list_keys(tx, before, limit)


def revoke(tx: Tx, actor: str, key_id: str) -> ApiKey:
    """Have the key end, and return it. Safe to call again: who was first, and when, stays.

    Raises ApiKeyNotFound (404).
    """
    queries.revoke_if_not_yet(tx, key_id, actor)
    return read(tx, key_id)
