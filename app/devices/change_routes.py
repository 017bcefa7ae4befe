from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.devices import changes
from app.devices.changes import Moved
from app.devices.schemas import Device, DeviceChange, Transfer, Transferred
from app.http import (
    V1,
    DatabaseOfUser,
    DeviceIdInPath,
    IfMatch,
    OriginOfCall,
    SettingsOfApp,
    UserIdInPath,
    parsed_if_match,
)
from app.idempotency.queries import Answer
from app.idempotency.routes import ClaimOfCall, answered
from app.problems import (
    ALREADY_REGISTERED,
    BLOCK_NOT_FOUND,
    DEVICE_BLOCKED,
    DEVICE_EXPIRED,
    DEVICE_LIMIT_REACHED,
    DEVICE_NOT_FOUND,
    ETAG,
    OF_A_BODY,
    OF_A_KEY,
    PRECONDITION_FAILED,
    answers,
)
from app.texts import Reason

router = APIRouter(prefix="/v1/users/{user_id}/devices/{device_id}", tags=["devices"], **V1)


@router.patch(
    "",
    operation_id="updateDevice",
    summary="Change what describes a device",
    responses={200: {"headers": ETAG}, **answers(DEVICE_NOT_FOUND, PRECONDITION_FAILED, *OF_A_BODY)},
)
async def update_device(
    user_id: UserIdInPath,
    device_id: DeviceIdInPath,
    change: DeviceChange,
    response: Response,
    origin: OriginOfCall,
    db: DatabaseOfUser,
    if_match: IfMatch = None,
) -> Device:
    """A JSON merge patch (RFC 7396), sent as `application/merge-patch+json` or `application/json`."""
    precondition = parsed_if_match(if_match)
    changed = await db.submit(changes.change_device, origin, user_id, device_id, change, precondition)
    response.headers["ETag"] = changed.device.etag
    return changed.device


@router.delete(
    "",
    operation_id="revokeDevice",
    summary="Revoke a device",
    status_code=204,
    response_class=Response,  # the default one would name a media type for no body
    responses=answers(DEVICE_NOT_FOUND, PRECONDITION_FAILED),
)
async def revoke_device(
    user_id: UserIdInPath,
    device_id: DeviceIdInPath,
    origin: OriginOfCall,
    db: DatabaseOfUser,
    block: Annotated[bool, Query(description="Refuse this device from now on, until it is allowed.")] = False,
    reason: Annotated[Reason | None, Query(description="Goes into the trail.")] = None,
    if_match: IfMatch = None,
) -> None:
    """Remove the device. Its slot is free at once, from every replica."""
    precondition = parsed_if_match(if_match)
    await db.submit(changes.revoke, origin.because(reason), user_id, device_id, precondition, block)


@router.post(
    "/allow",
    operation_id="allowDevice",
    summary="Lift a device's block",
    status_code=204,
    response_class=Response,
    responses=answers(BLOCK_NOT_FOUND, *OF_A_KEY),
)
async def allow_device(
    user_id: UserIdInPath,
    device_id: DeviceIdInPath,
    origin: OriginOfCall,
    claim: ClaimOfCall,
    db: DatabaseOfUser,
) -> Response:
    """The device may register again; it is an ordinary one."""
    return await answered(db, claim, _nothing, changes.allow, origin, user_id, device_id)


def _nothing(_done: object) -> Answer:
    return Answer(204, {}, "")


@router.post(
    "/heartbeat",
    operation_id="heartbeat",
    summary="Say that a device is in use",
    response_model=Device,
    responses={200: {"headers": ETAG}, **answers(DEVICE_NOT_FOUND, DEVICE_EXPIRED, *OF_A_KEY)},
)
async def heartbeat(
    user_id: UserIdInPath, device_id: DeviceIdInPath, claim: ClaimOfCall, db: DatabaseOfUser
) -> Response:
    """`last_seen_at` is now, and the lease starts anew. After 410, register again."""
    return await answered(db, claim, _device, changes.heartbeat, user_id, device_id)


def _device(device: Device) -> Answer:
    return Answer(200, {"ETag": device.etag}, device.model_dump_json())


@router.post(
    "/transfer",
    operation_id="transferDevice",
    summary="Move a device to another user",
    response_model=Transferred,
    responses={
        200: {"headers": ETAG},
        **answers(
            DEVICE_NOT_FOUND,
            DEVICE_LIMIT_REACHED,
            ALREADY_REGISTERED,
            DEVICE_BLOCKED,
            *OF_A_BODY,
            *OF_A_KEY,
        ),
    },
)
async def transfer_device(
    user_id: UserIdInPath,
    device_id: DeviceIdInPath,
    where: Transfer,
    origin: OriginOfCall,
    claim: ClaimOfCall,
    db: DatabaseOfUser,
    settings: SettingsOfApp,
) -> Response:
    """Under the receiver's limit."""
    both = claim and claim.locking(where.to_user_id)
    return await answered(
        db, both, _moved, changes.transfer, settings, origin, user_id, device_id, where.to_user_id
    )


def _moved(moved: Moved) -> Answer:
    body = Transferred.model_construct(device=moved.device, quota=moved.quota)
    return Answer(200, {"ETag": moved.device.etag}, body.model_dump_json())
