from typing import Annotated

import uuid_utils
from fastapi import APIRouter, Header, Query, Response

from app import cursors
from app.devices import service
from app.devices.schemas import Device, DeviceList, NewDevice, Registration
from app.etags import parse_if_match
from app.http import V1, DatabaseOfApp, DeviceIdInPath, SettingsOfApp, UserIdInPath, refuse
from app.problems import DEVICE_LIMIT_REACHED, DEVICE_NOT_FOUND, OF_A_BODY, PRECONDITION_FAILED, answers

router = APIRouter(prefix="/v1/users/{user_id}/devices", tags=["devices"], **V1)

ETAG = {"ETag": {"description": "The revision in quotes.", "schema": {"type": "string"}, "example": '"1"'}}
LOCATION = {"Location": {"description": "The device's address.", "schema": {"type": "string"}}}


@router.post(
    "",
    operation_id="registerDevice",
    summary="Register a device",
    status_code=201,
    response_description="Registered: one slot more is used",
    responses={
        200: {
            "model": Registration,
            "description": "Was registered before: refreshed, no slot used",
            "headers": ETAG,
        },
        201: {"headers": ETAG | LOCATION},
        **answers(DEVICE_LIMIT_REACHED, *OF_A_BODY),
    },
)
async def register_device(
    user_id: UserIdInPath, new: NewDevice, response: Response, db: DatabaseOfApp, settings: SettingsOfApp
) -> Registration:
    """Register a device under the user's limit. The same `device_id` again never takes a second slot."""
    # Made before the first run: a run after an uncertain COMMIT must find the device that it may have made.
    device_id = new.device_id or str(uuid_utils.uuid7())
    done = await db.submit(service.register, user_id, device_id, new, settings.default_device_limit)
    response.headers["ETag"] = done.device.etag
    if done.created:
        response.headers["Location"] = f"/v1/users/{user_id}/devices/{device_id}"
    else:
        response.status_code = 200
    return Registration(device=done.device, quota=done.quota)


@router.get("", operation_id="listDevices", summary="List a user's devices", responses=answers())
async def list_devices(
    user_id: UserIdInPath,
    db: DatabaseOfApp,
    settings: SettingsOfApp,
    limit: Annotated[int, Query(ge=1, le=100, description="Devices on a page.")] = 50,
    cursor: Annotated[
        str | None, Query(max_length=512, description="`next_cursor` of the page before.")
    ] = None,
) -> DeviceList:
    """Oldest first. A user that was never seen has an empty list."""
    with refuse("query", "cursor"):
        after = None if cursor is None else cursors.decode(cursor)
    found, quota = await db.submit(
        service.list_devices, user_id, after, limit + 1, settings.default_device_limit, read_only=True
    )
    items, more = found[:limit], found[limit:]
    last = cursors.encode(items[-1].registered_at, items[-1].device_id) if more else None
    return DeviceList(items=items, next_cursor=last, quota=quota)


@router.get(
    "/{device_id}",
    operation_id="getDevice",
    summary="Read one device",
    responses={200: {"headers": ETAG}, **answers(DEVICE_NOT_FOUND)},
)
async def get_device(
    user_id: UserIdInPath, device_id: DeviceIdInPath, response: Response, db: DatabaseOfApp
) -> Device:
    """The device as it is now."""
    device = await db.submit(service.read_device, user_id, device_id, read_only=True)
    response.headers["ETag"] = device.etag
    return device


@router.delete(
    "/{device_id}",
    operation_id="revokeDevice",
    summary="Revoke a device",
    status_code=204,
    response_class=Response,  # the default one would name a media type for no body
    responses=answers(DEVICE_NOT_FOUND, PRECONDITION_FAILED),
)
async def revoke_device(
    user_id: UserIdInPath,
    device_id: DeviceIdInPath,
    db: DatabaseOfApp,
    if_match: Annotated[str | None, Header(description="Revoke only at this ETag.", examples=['"1"'])] = None,
) -> None:
    """Remove the device. Its slot is free at once, from every replica."""
    with refuse("header", "if-match"):
        precondition = parse_if_match(if_match)
    await db.submit(service.revoke, user_id, device_id, precondition)
