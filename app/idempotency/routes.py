"""How a POST under `/v1/users` is answered: with its key's answer if it names one, else with its own."""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response

from app.db import Database, Work
from app.http import SettingsOfApp, UserIdInPath, refuse
from app.idempotency.queries import Answer
from app.idempotency.service import Claim, digest, once

R = TypeVar("R")

# draft-ietf-httpapi-idempotency-key-header has it as a quoted string; most clients send it bare.
_KEY_PATTERN = r'^(?:"([\x20-\x21\x23-\x5b\x5d-\x7e]{1,255})"|([\x21\x23-\x7e][\x20-\x7e]{0,254}))$'


async def _claim(
    request: Request,
    user_id: UserIdInPath,
    settings: SettingsOfApp,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="1 to 255 printable ASCII characters; the same key and call get the same answer.",
            json_schema_extra={"pattern": _KEY_PATTERN},
        ),
    ] = None,
) -> Claim | None:
    if idempotency_key is None:
        return None
    with refuse("header", "idempotency-key"):
        key = _parsed(idempotency_key)
    return Claim(
        users=(int(user_id),),
        scope_digest=digest(request.state.principal.actor, request.method, request.scope["path"], key),
        request_digest=digest(request.scope["query_string"], await request.body()),
        keep_seconds=settings.idempotency_hours * 3600,
    )


def _parsed(header: str) -> str:
    found = re.fullmatch(_KEY_PATTERN, header)
    if found is None:
        raise ValueError("must be 1 to 255 printable ASCII characters, quoted or bare")
    return found[1] or found[2]


ClaimOfCall = Annotated[Claim | None, Depends(_claim)]


async def answered(
    db: Database, claim: Claim | None, render: Callable[[R], Answer], work: Work[R], *args: Any
) -> Response:
    """The answer that `render` makes of what `work` gives, or the one that is kept for the call's key."""
    if claim is None:
        answer = render(await db.submit(work, *args))
    else:
        answer = await db.submit(once, claim, render, work, *args)
    return response_of(answer)


def response_of(answer: Answer) -> Response:
    media_type = "application/json" if answer.body else None
    return Response(answer.body or None, answer.status, answer.headers, media_type)
