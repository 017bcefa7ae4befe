from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Response

from app import cursors
from app.http import V1, CallerOfCall, Cursor, DatabaseOfApp, KnownKeysOfApp, PageSize, refuse
from app.keys import service
from app.keys.schemas import ApiKey, ApiKeyList, CreatedApiKey, KeyId, NewApiKey
from app.keys.service import Giver, Grant
from app.keys.token import new_token
from app.problems import API_KEY_NOT_FOUND, OF_A_BODY, SCOPE_NOT_HELD, answers

router = APIRouter(prefix="/v1/api-keys", tags=["api-keys"], **V1)

KeyIdInPath = Annotated[KeyId, Path(description="The key's `id`, which is no secret.")]
LOCATION = {"Location": {"description": "The key's address.", "schema": {"type": "string"}}}


@router.post(
    "",
    operation_id="createApiKey",
    summary="Make an API key",
    status_code=201,
    response_description="Made: its token is shown this once",
    responses={201: {"headers": LOCATION}, **answers(SCOPE_NOT_HELD, *OF_A_BODY)},
)
async def create_api_key(
    new: NewApiKey, response: Response, caller: CallerOfCall, db: DatabaseOfApp
) -> CreatedApiKey:
    """It may do at most what the caller may, and is known to all replicas at once.

    The token is kept nowhere. Where the answer was lost, revoke the key and make another.
    """
    end = None if new.expires_in_seconds is None else timedelta(seconds=new.expires_in_seconds)
    giver, token = Giver(caller.actor, caller.scopes), new_token()
    key = await db.submit(service.create, giver, token, Grant(new.name, frozenset(new.scopes), end))
    response.headers["Location"] = f"/v1/api-keys/{key.id}"
    return CreatedApiKey(api_key=key, token=token.text)


@router.get("", operation_id="listApiKeys", summary="List API keys", responses=answers())
async def list_api_keys(db: DatabaseOfApp, limit: PageSize = 50, cursor: Cursor = None) -> ApiKeyList:
    """Newest first. Keys that were revoked or have expired stay in the list."""
    with refuse("query", "cursor"):
        before = None if cursor is None else cursors.decode("api-keys", cursor)
    found = await db.submit(service.list_keys, before, limit + 1, read_only=True)
    items, more = found[:limit], found[limit:]
    last = cursors.encode("api-keys", items[-1].created_at, items[-1].id) if more else None
    return ApiKeyList(items=list(items), next_cursor=last)


@router.get(
    "/{key_id}",
    operation_id="getApiKey",
    summary="Read one API key",
    responses=answers(API_KEY_NOT_FOUND),
)
async def get_api_key(key_id: KeyIdInPath, db: DatabaseOfApp) -> ApiKey:
    """The key without its secret, also after it was revoked."""
    return await db.submit(service.read, key_id, read_only=True)


@router.delete(
    "/{key_id}",
    operation_id="revokeApiKey",
    summary="Revoke an API key",
    status_code=204,
    response_class=Response,
    responses=answers(API_KEY_NOT_FOUND),
)
async def revoke_api_key(
    key_id: KeyIdInPath, caller: CallerOfCall, db: DatabaseOfApp, known: KnownKeysOfApp
) -> None:
    """The key ends: at once in the process that answers, within 10 seconds in every other one.

    Safe to repeat: who revoked it first, and when, stays.
    """
    await db.submit(service.revoke, caller.actor, key_id)
    known.refuse(key_id)
