from typing import Annotated

import uuid_utils
from fastapi import APIRouter, Depends, Query, Request, Response

from app import cursors
from app.auth.errors import EvictionNotAllowed
from app.devices import changes, service
from app.devices.group_service import Call
from app.devices.groups import Groups
from app.devices.outcomes import counted_registration, outcome_of
from app.devices.schemas import Device, DeviceList, NewDevice, Registration, RevokedDevices
from app.devices.service import Registered
from app.http import (
    V1,
    CallerOfCall,
    Cursor,
    DatabaseOfUser,
    DeviceIdInPath,
    OriginOfCall,
    PageSize,
    SettingsOfApp,
    UserIdInPath,
    refuse,
)
from app.idempotency.queries import Answer
from app.idempotency.routes import ClaimOfCall, answered, response_of
from app.origin import Origin
from app.problems import (
    DEVICE_BLOCKED,
    DEVICE_LIMIT_REACHED,
    DEVICE_NOT_FOUND,
    ETAG,
    EVICTION_NOT_ALLOWED,
    OF_A_BODY,
    OF_A_KEY,
    RATE_EXCEEDED,
    answers,
)
from app.recording import registered
from app.texts import Reason

router = APIRouter(prefix="/v1/users/{user_id}/devices", tags=["devices"], **V1)

LOCATION = {"Location": {"description": "The device's address.", "schema": {"type": "string"}}}


async def _groups(request: Request) -> Groups:
    groups: Groups = request.app.state.groups
    return groups


GroupsOfApp = Annotated[Groups, Depends(_groups)]


@router.post(
    "",
    operation_id="registerDevice",
    summary="Register a device",
    status_code=201,
    response_model=Registration,
    response_description="Registered: one slot more is used",
    responses={
        200: {
            "model": Registration,
            "description": "Was registered before: refreshed, no slot used",
            "headers": ETAG,
        },
        201: {"headers": ETAG | LOCATION},
        **answers(
            DEVICE_LIMIT_REACHED,
            DEVICE_BLOCKED,
            EVICTION_NOT_ALLOWED,
            DEVICE_NOT_FOUND,
            RATE_EXCEEDED,
            *OF_A_BODY,
            *OF_A_KEY,
        ),
    },
)
async def register_device(
    user_id: UserIdInPath,
    new: NewDevice,
    caller: CallerOfCall,
    origin: OriginOfCall,
    claim: ClaimOfCall,
    db: DatabaseOfUser,
    groups: GroupsOfApp,
    settings: SettingsOfApp,
) -> Response:
    """Register a device under the user's limit. The same `device_id` again never takes a second slot."""
    if new.on_limit != "reject" and caller.user_id is not None and not settings.user_tokens_may_evict:
        raise EvictionNotAllowed
    if claim is None:
        return response_of(await registration_answer(groups, origin, int(user_id), new))
    with counted_registration():
        device_id = _chosen_or_made(new)
        return await answered(
            db, claim, _registration, service.register, settings, origin, user_id, device_id, new
        )


async def registration_answer(groups: Groups, origin: Origin, user_id: int, new: NewDevice) -> Answer:
    """Register by `service.register`, with what that raises, and count what it became."""
    with counted_registration():
        return _registration(await groups.register(Call(origin, user_id, _chosen_or_made(new), new)))


def _chosen_or_made(new: NewDevice) -> str:
    """Once for all runs: one after an uncertain COMMIT must find the device that it may have made."""
    return new.device_id or str(uuid_utils.uuid7())


def _registration(done: Registered) -> Answer:
    registered(outcome_of(done))
    headers = {"ETag": done.device.etag}
    if done.created:
        headers["Location"] = f"/v1/users/{done.device.user_id}/devices/{done.device.device_id}"
    body = Registration.model_construct(device=done.device, quota=done.quota, evicted=done.evicted)
    return Answer(201 if done.created else 200, headers, body.model_dump_json())


@router.get("", operation_id="listDevices", summary="List a user's devices", responses=answers())
async def list_devices(
    user_id: UserIdInPath,
    db: DatabaseOfUser,
    settings: SettingsOfApp,
    limit: PageSize = 50,
    cursor: Cursor = None,
) -> DeviceList:
    """Oldest first. A user that was never seen has an empty list."""
    with refuse("query", "cursor"):
        after = None if cursor is None else cursors.decode("devices", cursor)
    found, quota = await db.submit(service.list_devices, settings, user_id, after, limit + 1, read_only=True)
    items, more = found[:limit], found[limit:]
    last = cursors.encode("devices", items[-1].registered_at, items[-1].device_id) if more else None
    return DeviceList(items=items, next_cursor=last, quota=quota)


@router.delete(
    "", operation_id="revokeAllDevices", summary="Revoke all of a user's devices", responses=answers()
)
async def revoke_all_devices(
    user_id: UserIdInPath,
    origin: OriginOfCall,
    db: DatabaseOfUser,
    reason: Annotated[Reason | None, Query(description="Goes into the trail.")] = None,
) -> RevokedDevices:
    """In batches: devices that register meanwhile stay, and other users do not wait."""
    revoked, until = 0, None
    while True:
        batch = await db.submit(changes.revoke_some, origin.because(reason), user_id, until)
        revoked, until = revoked + len(batch.device_ids), batch.until
        if len(batch.device_ids) < service.MOST_AT_ONCE:
            return RevokedDevices(revoked=revoked)


@router.get(
    "/{device_id}",
    operation_id="getDevice",
    summary="Read one device",
    responses={200: {"headers": ETAG}, **answers(DEVICE_NOT_FOUND)},
)
async def get_device(
    user_id: UserIdInPath, device_id: DeviceIdInPath, response: Response, db: DatabaseOfUser
) -> Device:
    """The device as it is now."""
    device = await db.submit(service.read_device, user_id, device_id, read_only=True)
    response.headers["ETag"] = device.etag
    return device
