from fastapi import APIRouter

from app import cursors
from app.events import service
from app.events.schemas import EventList
from app.http import V1, Cursor, DatabaseOfUser, PageSize, UserIdInPath, refuse
from app.problems import answers

router = APIRouter(prefix="/v1/users/{user_id}/events", tags=["events"], **V1)


@router.get("", operation_id="listEvents", summary="Read a user's audit trail", responses=answers())
async def list_events(
    user_id: UserIdInPath, db: DatabaseOfUser, limit: PageSize = 50, cursor: Cursor = None
) -> EventList:
    """Newest first. Heartbeats and repeated registrations are no events."""
    with refuse("query", "cursor"):
        before = None if cursor is None else cursors.decode_number("events", cursor)
    found = await db.submit(service.list_events, user_id, before, limit + 1, read_only=True)
    items, more = found[:limit], found[limit:]
    last = cursors.encode("events", items[-1].occurred_at, str(items[-1].id)) if more else None
    return EventList(items=list(items), next_cursor=last)
