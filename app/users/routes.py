from fastapi import APIRouter, Response

from app.http import V1, DatabaseOfUser, OriginOfCall, UserIdInPath
from app.problems import answers
from app.users import service

router = APIRouter(prefix="/v1/users/{user_id}", tags=["users"], **V1)


@router.delete(
    "",
    operation_id="eraseUser",
    summary="Erase a user",
    status_code=204,
    response_class=Response,
    responses=answers(),
)
async def erase_user(user_id: UserIdInPath, origin: OriginOfCall, db: DatabaseOfUser) -> None:
    """Erase all that is held on the user: devices, own limit, blocks, trail. One event without data stays."""
    while await db.submit(service.erase_some, user_id):
        pass
    await db.submit(service.erase_rest, origin, user_id)
