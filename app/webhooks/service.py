"""The use cases of endpoints and deliveries. Each is one transaction, maybe run more than once."""

from app.db import Tx, uncertain_result
from app.errors import InvalidRequest, PreconditionFailed
from app.etags import Precondition
from app.settings import Settings
from app.webhooks import changes, queries
from app.webhooks.addresses import parse_url
from app.webhooks.claim_queries import lock_endpoints
from app.webhooks.errors import (
    DeliveryInOtherState,
    DeliveryNotFound,
    EndpointDisabled,
    EndpointLimitReached,
    EndpointNotFound,
)
from app.webhooks.schemas import NewWebhookEndpoint, WebhookDelivery, WebhookEndpoint, WebhookEndpointChange

MOST_ENDPOINTS = 100


def create_endpoint(tx: Tx, settings: Settings, key: bytes, new: NewWebhookEndpoint) -> WebhookEndpoint:
    """Make an endpoint whose secret is `key`, made before the first run: by it a run again knows its own.

    Locks all endpoints, so that two calls do not both take the last place. Raises InvalidRequest (422),
    EndpointLimitReached (409).
    """
    url = _one_spelling(settings, new.url)
    lock_endpoints(tx, queries.all_endpoint_ids(tx))
    earlier: WebhookEndpoint | None = uncertain_result(tx)
    if earlier is not None and queries.has_key(tx, earlier.id, key):
        return read_endpoint(tx, earlier.id)
    if queries.count_endpoints(tx) >= MOST_ENDPOINTS:
        raise EndpointLimitReached(MOST_ENDPOINTS)
    fields = {"url": url, "event_types": new.event_types, "description": new.description}
    return read_endpoint(tx, queries.insert_endpoint(tx, key, fields))


def _one_spelling(settings: Settings, url: str) -> str:
    try:
        target = parse_url(
            url, allow_http=settings.webhooks_allow_http, allow_private=settings.webhooks_allow_private
        )
    except ValueError as error:
        raise InvalidRequest([{"detail": str(error), "location": "body", "pointer": "#/url"}]) from None
    return target.url


def read_endpoint(tx: Tx, endpoint_id: int) -> WebhookEndpoint:
    """The endpoint. Takes no lock. Raises EndpointNotFound (404)."""
    found = queries.find_endpoint(tx, endpoint_id)
    if found is None:
        raise EndpointNotFound(endpoint_id)
    return found


def _locked(tx: Tx, endpoint_id: int) -> WebhookEndpoint:
    """The endpoint, its lock held: no delivery of it is claimed or settled until `tx` ends."""
    lock_endpoints(tx, [endpoint_id])
    return read_endpoint(tx, endpoint_id)


def change_endpoint(
    tx: Tx, settings: Settings, endpoint_id: int, change: WebhookEndpointChange, precondition: Precondition
) -> WebhookEndpoint:
    """Apply a merge patch. Safe to call again.

    Raises EndpointNotFound (404), PreconditionFailed (412), InvalidRequest (422).
    """
    given = change.given_fields()
    if "url" in given:
        given["url"] = _one_spelling(settings, given["url"])
    before = _locked(tx, endpoint_id)
    differing = {name: value for name, value in given.items() if getattr(before, name) != value}
    if uncertain_result(tx) is not None and not differing:
        return before  # this call's earlier run has done it
    if not precondition.holds(before.revision):
        raise PreconditionFailed(before.revision)
    if differing:
        queries.update_endpoint(tx, endpoint_id, differing)
    return read_endpoint(tx, endpoint_id)


def delete_endpoint(tx: Tx, endpoint_id: int, precondition: Precondition) -> bool:
    """Delete the endpoint and its secrets. What is open of its deliveries, the sweeper discards.

    Raises EndpointNotFound (404), PreconditionFailed (412).
    """
    lock_endpoints(tx, [endpoint_id])
    found = queries.find_endpoint(tx, endpoint_id)
    if found is None and uncertain_result(tx) is not None:
        return True  # by this call's earlier run
    found = read_endpoint(tx, endpoint_id)
    if not precondition.holds(found.revision):
        raise PreconditionFailed(found.revision)
    queries.mark_deleted(tx, endpoint_id)
    return True


def rotate_secret(
    tx: Tx, endpoint_id: int, key: bytes, grace_seconds: int, precondition: Precondition
) -> WebhookEndpoint:
    """Have `key` be the secret; the one before it signs as well for `grace_seconds`. Safe to call again.

    Raises EndpointNotFound (404), PreconditionFailed (412).
    """
    before = _locked(tx, endpoint_id)
    if queries.has_key(tx, endpoint_id, key):
        return before  # this call's earlier run has done it
    if not precondition.holds(before.revision):
        raise PreconditionFailed(before.revision)
    queries.rotate_secret(tx, endpoint_id, key, grace_seconds)
    return read_endpoint(tx, endpoint_id)


def send_test(tx: Tx, endpoint_id: int) -> WebhookDelivery:
    """Have a test event delivered to this endpoint. Raises EndpointNotFound (404), EndpointDisabled (409)."""
    endpoint = _locked(tx, endpoint_id)
    earlier: WebhookDelivery | None = uncertain_result(tx)
    if earlier is not None and queries.has_test(tx, earlier):
        return read_delivery(tx, earlier.id)  # of this call's earlier run
    if not endpoint.enabled:
        raise EndpointDisabled(endpoint_id)
    return read_delivery(tx, queries.insert_test(tx, endpoint_id))


def read_delivery(tx: Tx, delivery_id: int) -> WebhookDelivery:
    """The delivery. Takes no lock. Raises DeliveryNotFound (404)."""
    found = queries.find_delivery(tx, delivery_id)
    if found is None:
        raise DeliveryNotFound(delivery_id)
    return found


def retry_delivery(tx: Tx, delivery_id: int) -> WebhookDelivery:
    """Have it tried at once: a retrying one, or from the start a discarded one.

    Raises DeliveryNotFound (404), EndpointNotFound (404), EndpointDisabled (409), DeliveryInOtherState (409).
    """
    endpoint = _locked(tx, read_delivery(tx, delivery_id).endpoint_id)
    if not endpoint.enabled:
        raise EndpointDisabled(endpoint.id)
    return _changed(tx, delivery_id, done=changes.retry(tx, delivery_id))


def discard_delivery(tx: Tx, delivery_id: int) -> WebhookDelivery:
    """Give it up; what waits behind it goes on.

    Raises DeliveryNotFound (404), DeliveryInOtherState (409) also where it is under way.
    """
    return _changed(tx, delivery_id, done=changes.discard(tx, delivery_id))


def _changed(tx: Tx, delivery_id: int, *, done: bool) -> WebhookDelivery:
    """The delivery after a change, which an earlier run may have made."""
    found = read_delivery(tx, delivery_id)
    if not done and uncertain_result(tx) is None:
        raise DeliveryInOtherState(delivery_id, found.state)
    return found
