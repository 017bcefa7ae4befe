"""Who calls, and whether they may: a key with the scope that the call needs, or a user on their own."""

import hmac
from dataclasses import dataclass

from fastapi import Request
from fastapi.security import HTTPBearer
from starlette.datastructures import State

from app.auth.errors import Forbidden, ForbiddenToUsers, Unauthenticated, UnknownCredential
from app.auth.known_keys import KnownKeys
from app.auth.scopes import SCOPES, Access, Scope
from app.auth.user_tokens import UserTokens
from app.errors import NotFound
from app.keys.token import PREFIX, digest_of, id_in

ROOT_ACTOR = "root_key"
OWN_USER = "me"

bearer = HTTPBearer(auto_error=False, description="An API key, `cupo_…`. For the first one, the root key.")


@dataclass(frozen=True, slots=True)
class Principal:
    """A known caller. `actor` goes into the trail; `user_id` is set where a user calls for themselves."""

    actor: str
    scopes: frozenset[Scope] = frozenset()
    user_id: int | None = None


ROOT = Principal(ROOT_ACTOR, frozenset(SCOPES))


async def authenticate(request: Request) -> Principal:
    """The caller; Unauthenticated (401) where none is known, whatever the reason.

    Compares digests, in constant time, so that neither a key's text nor its length shows in the duration.
    Raises Unavailable (503) where the database has to be asked for a key and does not answer.
    """
    if len(request.headers.getlist("authorization")) > 1:
        raise UnknownCredential  # a proxy may have looked at the other one
    credentials = await bearer(request)
    if credentials is None:
        raise Unauthenticated
    return await bearer_of(request.app.state, credentials.credentials)


async def bearer_of(service: State, token: str) -> Principal:
    """Who holds this token, or UnknownCredential (401); Unavailable (503) as in `authenticate`."""
    digest = digest_of(token)
    if service.root_key_digest is not None and hmac.compare_digest(digest, service.root_key_digest):
        return ROOT
    if token.startswith(PREFIX):
        return await _holder_of_key(service.known_keys, token, digest)
    if token.count(".") == 2:
        return await _user_of_token(service.user_tokens, token)
    raise UnknownCredential


async def _holder_of_key(known: KnownKeys, token: str, digest: bytes) -> Principal:
    key_id = id_in(token)
    key = None if key_id is None else await known.find(key_id, digest)
    if key is None:
        raise UnknownCredential
    return Principal(key.actor, key.scopes)


async def _user_of_token(tokens: UserTokens | None, token: str) -> Principal:
    if tokens is None:
        raise UnknownCredential
    user_id = await tokens.user_of(token)
    return Principal(f"user:{user_id}", user_id=user_id)


def authorise(principal: Principal, access: Access, request: Request) -> None:
    """Let those pass who may make this call; Forbidden (403) otherwise.

    A user's own token knows of no other user: NotFound (404) for whichever id is not theirs. `me` in the path
    becomes their id.
    """
    named = request.path_params.get("user_id")
    meant = user_meant(principal, access, named)
    if meant is not None:
        request.path_params["user_id"] = meant


def user_meant(principal: Principal, access: Access, named: str | None) -> str | None:
    """`authorise`, where the path names this user: whom it means."""
    if principal.user_id is None:
        if access.scope not in principal.scopes:
            raise Forbidden(access.scope)
        return named
    own = str(principal.user_id)
    if named is not None and named not in {OWN_USER, own}:
        raise NotFound
    if not access.own_user:
        raise ForbiddenToUsers(access.scope)
    return own
