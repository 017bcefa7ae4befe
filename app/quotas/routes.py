from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.http import V1, DatabaseOfUser, IfMatch, OriginOfCall, SettingsOfApp, UserIdInPath, parsed_if_match
from app.problems import ETAG, OF_A_BODY, PRECONDITION_FAILED, answers
from app.quotas import service
from app.quotas.schemas import OwnLimit, Quota
from app.texts import Reason

router = APIRouter(prefix="/v1/users/{user_id}/quota", tags=["quotas"], **V1)


@router.get(
    "",
    operation_id="getQuota",
    summary="Read a user's quota",
    responses={200: {"headers": ETAG}, **answers()},
)
async def get_quota(
    user_id: UserIdInPath, response: Response, db: DatabaseOfUser, settings: SettingsOfApp
) -> Quota:
    """How many devices the user may have and has. A user that was never seen has used none."""
    quota = await db.submit(service.read_quota, settings, user_id, read_only=True)
    response.headers["ETag"] = quota.etag
    return quota


@router.put(
    "",
    operation_id="setQuota",
    summary="Give a user a limit of its own",
    responses={200: {"headers": ETAG}, **answers(PRECONDITION_FAILED, *OF_A_BODY)},
)
async def set_quota(
    user_id: UserIdInPath,
    own: OwnLimit,
    response: Response,
    origin: OriginOfCall,
    db: DatabaseOfUser,
    settings: SettingsOfApp,
    if_match: IfMatch = None,
) -> Quota:
    """Below what is used nobody is thrown out: new devices are refused until there is room."""
    precondition = parsed_if_match(if_match)
    limited = await db.submit(
        service.set_limit, settings, origin.because(own.reason), user_id, own.limit, precondition
    )
    response.headers["ETag"] = limited.quota.etag
    return limited.quota


@router.delete(
    "",
    operation_id="resetQuota",
    summary="Give a user the default limit again",
    responses={200: {"headers": ETAG}, **answers(PRECONDITION_FAILED)},
)
async def reset_quota(
    user_id: UserIdInPath,
    response: Response,
    origin: OriginOfCall,
    db: DatabaseOfUser,
    settings: SettingsOfApp,
    reason: Annotated[Reason | None, Query(description="Goes into the trail.")] = None,
    if_match: IfMatch = None,
) -> Quota:
    """The user's own limit is gone; the service's default counts."""
    precondition = parsed_if_match(if_match)
    limited = await db.submit(
        service.set_limit, settings, origin.because(reason), user_id, None, precondition
    )
    response.headers["ETag"] = limited.quota.etag
    return limited.quota
