from fastapi import APIRouter

from app.http import V1, DatabaseOfApp, SettingsOfApp, UserIdInPath
from app.problems import answers
from app.quotas import service
from app.quotas.schemas import Quota

router = APIRouter(prefix="/v1/users/{user_id}/quota", tags=["quotas"], **V1)


@router.get("", operation_id="getQuota", summary="Read a user's quota", responses=answers())
async def get_quota(user_id: UserIdInPath, db: DatabaseOfApp, settings: SettingsOfApp) -> Quota:
    """How many devices the user may have and has. A user that was never seen has used none."""
    return await db.submit(service.read_quota, user_id, settings.default_device_limit, read_only=True)
