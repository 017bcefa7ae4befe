"""Who calls: today the holder of the root key, or nobody."""

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.errors import Unauthenticated

_bearer = HTTPBearer(auto_error=False, description="The root key, `CUPO_ROOT_KEY`.")


async def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Let the root key pass; Unauthenticated (401) otherwise.

    Compares digests, in constant time, so that neither the key's text nor its length shows in the duration.
    """
    if credentials is None:
        raise Unauthenticated
    given = hashlib.sha256(credentials.credentials.encode(errors="surrogateescape")).digest()
    if not hmac.compare_digest(given, request.app.state.root_key_digest):
        raise Unauthenticated
