from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app import cursors
from app.http import V1, Cursor, DatabaseOfApp, IfMatch, PageSize, SettingsOfApp, parsed_if_match, refuse
from app.problems import (
    ENDPOINT_DISABLED,
    ENDPOINT_LIMIT_REACHED,
    ENDPOINT_NOT_FOUND,
    ETAG,
    OF_A_BODY,
    PRECONDITION_FAILED,
    answers,
)
from app.webhooks import queries, service
from app.webhooks.schemas import (
    EndpointId,
    NewWebhookEndpoint,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEndpointChange,
    WebhookEndpointList,
    WebhookEndpointWithSecret,
)
from app.webhooks.signing import new_key, spelled

router = APIRouter(prefix="/v1/webhook-endpoints", tags=["webhooks"], **V1)

EndpointIdInPath = Annotated[EndpointId, Path(description="As it was given.")]
LOCATION = {"Location": {"description": "The address of what was made.", "schema": {"type": "string"}}}
DAY_SECONDS = 86_400


@router.post(
    "",
    operation_id="createWebhookEndpoint",
    summary="Name an endpoint that is told what happens",
    status_code=201,
    responses={201: {"headers": ETAG | LOCATION}, **answers(ENDPOINT_LIMIT_REACHED, *OF_A_BODY)},
)
async def create_webhook_endpoint(
    new: NewWebhookEndpoint, response: Response, db: DatabaseOfApp, settings: SettingsOfApp
) -> WebhookEndpointWithSecret:
    """It is told of what happens from now on. The answer shows its secret, which no other call does."""
    key = new_key()
    made = await db.submit(service.create_endpoint, settings, key, new)
    response.headers["ETag"] = made.etag
    response.headers["Location"] = f"{router.prefix}/{made.id}"
    return _with_secret(made, key)


def _with_secret(endpoint: WebhookEndpoint, key: bytes) -> WebhookEndpointWithSecret:
    return WebhookEndpointWithSecret.model_construct(**dict(endpoint), secret=spelled(key))


@router.get("", operation_id="listWebhookEndpoints", summary="List the endpoints", responses=answers())
async def list_webhook_endpoints(
    db: DatabaseOfApp, limit: PageSize = 50, cursor: Cursor = None
) -> WebhookEndpointList:
    """Oldest first."""
    with refuse("query", "cursor"):
        after_id = 0 if cursor is None else cursors.decode_number("webhook-endpoints", cursor)[1]
    found = await db.submit(queries.list_endpoints, after_id, limit + 1, read_only=True)
    items, more = found[:limit], found[limit:]
    last = cursors.encode("webhook-endpoints", items[-1].created_at, str(items[-1].id)) if more else None
    return WebhookEndpointList(items=items, next_cursor=last)


@router.get(
    "/{endpoint_id}",
    operation_id="getWebhookEndpoint",
    summary="Read one endpoint",
    responses={200: {"headers": ETAG}, **answers(ENDPOINT_NOT_FOUND)},
)
async def get_webhook_endpoint(
    endpoint_id: EndpointIdInPath, response: Response, db: DatabaseOfApp
) -> WebhookEndpoint:
    """The endpoint as it is now, without its secret."""
    endpoint = await db.submit(service.read_endpoint, int(endpoint_id), read_only=True)
    response.headers["ETag"] = endpoint.etag
    return endpoint


@router.patch(
    "/{endpoint_id}",
    operation_id="updateWebhookEndpoint",
    summary="Change, disable or enable an endpoint",
    responses={200: {"headers": ETAG}, **answers(ENDPOINT_NOT_FOUND, PRECONDITION_FAILED, *OF_A_BODY)},
)
async def update_webhook_endpoint(
    endpoint_id: EndpointIdInPath,
    change: WebhookEndpointChange,
    response: Response,
    db: DatabaseOfApp,
    settings: SettingsOfApp,
    if_match: IfMatch = None,
) -> WebhookEndpoint:
    """A JSON merge patch (RFC 7396), sent as `application/merge-patch+json` or `application/json`."""
    precondition = parsed_if_match(if_match)
    endpoint = await db.submit(service.change_endpoint, settings, int(endpoint_id), change, precondition)
    response.headers["ETag"] = endpoint.etag
    return endpoint


@router.delete(
    "/{endpoint_id}",
    operation_id="deleteWebhookEndpoint",
    summary="Delete an endpoint",
    status_code=204,
    response_class=Response,
    responses=answers(ENDPOINT_NOT_FOUND, PRECONDITION_FAILED),
)
async def delete_webhook_endpoint(
    endpoint_id: EndpointIdInPath, db: DatabaseOfApp, if_match: IfMatch = None
) -> None:
    """It is told nothing more. What was still to be told it is discarded."""
    precondition = parsed_if_match(if_match)
    await db.submit(service.delete_endpoint, int(endpoint_id), precondition)


@router.post(
    "/{endpoint_id}/rotate-secret",
    operation_id="rotateWebhookSecret",
    summary="Give an endpoint a new secret",
    responses={200: {"headers": ETAG}, **answers(ENDPOINT_NOT_FOUND, PRECONDITION_FAILED)},
)
async def rotate_webhook_secret(
    endpoint_id: EndpointIdInPath,
    response: Response,
    db: DatabaseOfApp,
    grace_seconds: Annotated[
        int,
        Query(
            ge=0,
            le=7 * DAY_SECONDS,
            description="How long the secret of before signs as well; 0: it is lost.",
        ),
    ] = DAY_SECONDS,
    if_match: IfMatch = None,
) -> WebhookEndpointWithSecret:
    """Until the grace is over each message has two signatures, so the receiver may change over any time.

    A second rotation ends the secret before the first. Send `If-Match`, so that a call repeated after its
    answer was lost is refused (412) and the receiver's secret stays good.
    """
    precondition, key = parsed_if_match(if_match), new_key()
    endpoint = await db.submit(service.rotate_secret, int(endpoint_id), key, grace_seconds, precondition)
    response.headers["ETag"] = endpoint.etag
    return _with_secret(endpoint, key)


@router.post(
    "/{endpoint_id}/test",
    operation_id="testWebhookEndpoint",
    summary="Send a test event",
    status_code=202,
    responses={202: {"headers": LOCATION}, **answers(ENDPOINT_NOT_FOUND, ENDPOINT_DISABLED)},
)
async def test_webhook_endpoint(
    endpoint_id: EndpointIdInPath, response: Response, db: DatabaseOfApp
) -> WebhookDelivery:
    """A `webhook.test`, to this endpoint alone, whatever its filter. What comes of it shows at `Location`."""
    delivery = await db.submit(service.send_test, int(endpoint_id))
    response.headers["Location"] = f"/v1/webhook-deliveries/{delivery.id}"
    return delivery
