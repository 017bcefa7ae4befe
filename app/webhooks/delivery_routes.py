from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from app import cursors
from app.http import V1, Cursor, DatabaseOfApp, PageSize, refuse
from app.problems import (
    DELIVERY_IN_OTHER_STATE,
    DELIVERY_NOT_FOUND,
    ENDPOINT_DISABLED,
    ENDPOINT_NOT_FOUND,
    answers,
)
from app.texts import DeliveryState, EventType
from app.webhooks import queries, service
from app.webhooks.queries import Filter
from app.webhooks.schemas import (
    DeliveryId,
    EndpointId,
    EventId,
    WebhookDelivery,
    WebhookDeliveryList,
)

router = APIRouter(prefix="/v1/webhook-deliveries", tags=["webhooks"], **V1)

DeliveryIdInPath = Annotated[DeliveryId, Path(description="As it was given.")]


@router.get("", operation_id="listWebhookDeliveries", summary="List deliveries", responses=answers())
async def list_webhook_deliveries(
    db: DatabaseOfApp,
    state: Annotated[DeliveryState | None, Query(description="Only those in this state.")] = None,
    endpoint_id: Annotated[EndpointId | None, Query(description="Only those to this endpoint.")] = None,
    event_id: Annotated[EventId | None, Query(description="Only those of this event.")] = None,
    type: Annotated[  # noqa: A002 - its name in the query
        Literal[EventType, "webhook.test"] | None, Query(description="Only those of events of this type.")
    ] = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
) -> WebhookDeliveryList:
    """Newest first. Those that ended are kept for 30 days."""
    wanted = Filter(state, _number(endpoint_id), _number(event_id), type)
    with refuse("query", "cursor"):
        before_id = None if cursor is None else cursors.decode_number("webhook-deliveries", cursor)[1]
    found = await db.submit(queries.list_deliveries, wanted, before_id, limit + 1, read_only=True)
    items, more = found[:limit], found[limit:]
    last = cursors.encode("webhook-deliveries", items[-1].created_at, str(items[-1].id)) if more else None
    return WebhookDeliveryList(items=list(items), next_cursor=last)


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


@router.get(
    "/{delivery_id}",
    operation_id="getWebhookDelivery",
    summary="Read one delivery",
    responses=answers(DELIVERY_NOT_FOUND),
)
async def get_webhook_delivery(delivery_id: DeliveryIdInPath, db: DatabaseOfApp) -> WebhookDelivery:
    """Its state, and what its last attempt came to."""
    return await db.submit(service.read_delivery, int(delivery_id), read_only=True)


@router.post(
    "/{delivery_id}/retry",
    operation_id="retryWebhookDelivery",
    summary="Try a delivery now",
    responses=answers(DELIVERY_NOT_FOUND, ENDPOINT_NOT_FOUND, ENDPOINT_DISABLED, DELIVERY_IN_OTHER_STATE),
)
async def retry_webhook_delivery(delivery_id: DeliveryIdInPath, db: DatabaseOfApp) -> WebhookDelivery:
    """One that is `retrying`, without its wait; one that was `discarded`, with all its attempts again.

    Not at an endpoint that is disabled: nothing is sent there.
    """
    return await db.submit(service.retry_delivery, int(delivery_id))


@router.post(
    "/{delivery_id}/discard",
    operation_id="discardWebhookDelivery",
    summary="Give a delivery up",
    responses=answers(DELIVERY_NOT_FOUND, DELIVERY_IN_OTHER_STATE),
)
async def discard_webhook_delivery(delivery_id: DeliveryIdInPath, db: DatabaseOfApp) -> WebhookDelivery:
    """One that is `waiting`, `pending` or `retrying`. What waits behind it goes on."""
    return await db.submit(service.discard_delivery, int(delivery_id))
