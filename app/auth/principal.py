"""Who calls: today the holder of the root key, or nobody."""

import hashlib
import hmac

from fastapi import Request
from fastapi.security import HTTPBearer

from app.errors import Unauthenticated

ROOT_ACTOR = "root_key"

bearer = HTTPBearer(auto_error=False, description="The root key, `CUPO_ROOT_KEY`.")


async def authenticate(request: Request) -> None:
    """Let the root key pass; Unauthenticated (401) otherwise.

    Compares digests, in constant time, so that neither the key's text nor its length shows in the duration.
    """
    credentials = await bearer(request)
    if credentials is None:
        raise Unauthenticated
    given = hashlib.sha256(credentials.credentials.encode(errors="surrogateescape")).digest()
    if not hmac.compare_digest(given, request.app.state.root_key_digest):
        raise Unauthenticated
    request.state.actor = ROOT_ACTOR
