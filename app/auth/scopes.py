"""What each call under `/v1` needs of its caller, in one table. A route that is not in it stops the start."""

from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal[
    "devices:read",
    "devices:write",
    "quotas:write",
    "events:read",
    "users:erase",
    "webhooks:manage",
    "keys:manage",
]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may make a call: a key with this scope, and where `own_user` the user whom the path names."""

    scope: Scope
    own_user: bool = False


# By operation id. A user's own token may neither set limits, lift blocks, give devices away nor erase.
ACCESS: dict[str, Access] = {
    "registerDevice": Access("devices:write", own_user=True),
    "listDevices": Access("devices:read", own_user=True),
    "revokeAllDevices": Access("devices:write", own_user=True),
    "getDevice": Access("devices:read", own_user=True),
    "updateDevice": Access("devices:write", own_user=True),
    "revokeDevice": Access("devices:write", own_user=True),
    "allowDevice": Access("devices:write"),
    "heartbeat": Access("devices:write", own_user=True),
    "transferDevice": Access("devices:write"),
    "getQuota": Access("devices:read", own_user=True),
    "setQuota": Access("quotas:write"),
    "resetQuota": Access("quotas:write"),
    "listEvents": Access("events:read", own_user=True),
    "eraseUser": Access("users:erase"),
    "createApiKey": Access("keys:manage"),
    "listApiKeys": Access("keys:manage"),
    "getApiKey": Access("keys:manage"),
    "revokeApiKey": Access("keys:manage"),
    "createWebhookEndpoint": Access("webhooks:manage"),
    "listWebhookEndpoints": Access("webhooks:manage"),
    "getWebhookEndpoint": Access("webhooks:manage"),
    "updateWebhookEndpoint": Access("webhooks:manage"),
    "deleteWebhookEndpoint": Access("webhooks:manage"),
    "rotateWebhookSecret": Access("webhooks:manage"),
    "testWebhookEndpoint": Access("webhooks:manage"),
    "listWebhookDeliveries": Access("webhooks:manage"),
    "getWebhookDelivery": Access("webhooks:manage"),
    "retryWebhookDelivery": Access("webhooks:manage"),
    "discardWebhookDelivery": Access("webhooks:manage"),
}
