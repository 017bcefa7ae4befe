"""The OpenAPI document, complete enough to generate a client from."""

import copy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from app.auth.principal import OWN_USER
from app.auth.scopes import ACCESS
from app.errors import BodyTooLarge
from app.keys.schemas import ApiKey, ApiKeyList, CreatedApiKey
from app.problems import EXAMPLE_REQUEST_ID, Problem, answers
from app.texts import USER_ID_PATTERN

DESCRIPTION = """
Registers devices per user under a limit, and never lets a user pass it, whatever arrives at once.

Everything under `/v1` needs `Authorization: Bearer <key>`: an API key with the scope that the call needs. A
key that is revoked counts nowhere after 10 seconds. Where the service takes user tokens, one of them does for
the calls that say so, on its own user, who may be written `me`; any other user is 404 to it.

Where a POST has the parameter `Idempotency-Key`, the same call with the same key has one effect. Every other
POST refuses that header by a 422.

Errors are `application/problem+json` (RFC 9457); their `code` is stable. After a 503 it is safe to repeat the
call.
""".strip()

TAGS = [
    {"name": "devices", "description": "Register, list, read, change, move and revoke a user's devices."},
    {"name": "events", "description": "What happened to a user's devices and quota, and who asked for it."},
    {"name": "users", "description": "A user as a whole."},
    {"name": "quotas", "description": "How many devices a user may have and has."},
    {"name": "api-keys", "description": "Who else may call: for how long, and what for."},
    {"name": "webhooks", "description": "Endpoints that are told what happens, and the deliveries to them."},
    {"name": "operations", "description": "Health, for load balancers and whoever is on call."},
]

REQUEST_ID = {
    "description": "The request's own X-Request-ID if that is a sane token, else one that was made.",
    "schema": {"type": "string"},
    "example": EXAMPLE_REQUEST_ID,
}
USER_TOKEN = {
    "UserToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A user's own token, by the issuer that the service was told of.",
    }
}
# Looked at before any route, also where a call has no use for a body.
BODY_TOO_LARGE = answers(BodyTooLarge(65_536))[BodyTooLarge.status]


def _link(operation_id: str, **parameters: str) -> dict[str, Any]:
    return {operation_id: {"operationId": operation_id, "parameters": parameters}}


def _links_of_device(at: str) -> dict[str, Any]:
    """What can be asked next of the device at `at`, a JSON pointer into the answer."""
    device = {"user_id": f"$response.body#{at}/user_id", "device_id": f"$response.body#{at}/device_id"}
    seen = {"if-match": "$response.header.ETag"}
    return (
        _link("getDevice", **device)
        | _link("updateDevice", **device, **seen)
        | _link("revokeDevice", **device, **seen)
        | _link("heartbeat", **device)
        | _link("transferDevice", **device)
    )


def _links_of_user(at: str) -> dict[str, Any]:
    user = {"user_id": f"$response.body#{at}/user_id"}
    return _link("listDevices", **user) | _link("getQuota", **user) | _link("listEvents", **user)


def _links_of_key(at: str) -> dict[str, Any]:
    key = {"key_id": f"$response.body#{at}/id"}
    return _link("getApiKey", **key) | _link("revokeApiKey", **key)


_OF_MOVED_DEVICE = _links_of_device("/device") | _links_of_user("/device")
_USER = {"user_id": "$request.path.user_id"}
_NEXT_PAGE = _USER | {"cursor": "$response.body#/next_cursor"}


def _links_of_endpoint(at: str) -> dict[str, Any]:
    """What can be asked next of the endpoint whose id is at `at`."""
    endpoint = {"endpoint_id": at}
    return (
        _link("getWebhookEndpoint", **endpoint)
        | _link("updateWebhookEndpoint", **endpoint)
        | _link("rotateWebhookSecret", **endpoint)
        | _link("testWebhookEndpoint", **endpoint)
        | _link("listWebhookDeliveries", **endpoint)
        | _link("deleteWebhookEndpoint", **endpoint)
    )


_DELIVERY = {"delivery_id": "$response.body#/id"}
_OF_DELIVERY = (
    _link("getWebhookDelivery", **_DELIVERY)
    | _link("retryWebhookDelivery", **_DELIVERY)
    | _link("discardWebhookDelivery", **_DELIVERY)
)
_NEXT_OF_ALL = {"cursor": "$response.body#/next_cursor"}
# Which call an answer's values lead to (OpenAPI 3.1, section 4.8.20): operation, status, links.
LINKS = [
    ("registerDevice", "201", _OF_MOVED_DEVICE),
    ("registerDevice", "200", _OF_MOVED_DEVICE),
    ("getDevice", "200", _links_of_device("")),
    ("updateDevice", "200", _links_of_device("")),
    ("heartbeat", "200", _links_of_device("")),
    ("transferDevice", "200", _OF_MOVED_DEVICE),
    ("listDevices", "200", _link("listDevices", **_NEXT_PAGE)),
    ("listEvents", "200", _link("listEvents", **_NEXT_PAGE)),
    ("createApiKey", "201", _links_of_key("/api_key")),
    ("getApiKey", "200", _links_of_key("")),
    ("listApiKeys", "200", _link("listApiKeys", cursor="$response.body#/next_cursor")),
    ("revokeDevice", "204", _link("allowDevice", **_USER, device_id="$request.path.device_id")),
    ("createWebhookEndpoint", "201", _links_of_endpoint("$response.body#/id")),
    ("getWebhookEndpoint", "200", _links_of_endpoint("$response.body#/id")),
    ("listWebhookEndpoints", "200", _link("listWebhookEndpoints", **_NEXT_OF_ALL)),
    ("testWebhookEndpoint", "202", _OF_DELIVERY),
    ("getWebhookDelivery", "200", _OF_DELIVERY),
    ("listWebhookDeliveries", "200", _link("listWebhookDeliveries", **_NEXT_OF_ALL)),
    ("setQuota", "200", _link("resetQuota", **_USER, **{"if-match": "$response.header.ETag"})),
]


# FastAPI leaves nulls out of examples, and those of these models have some.
HAVE_NULLS = (ApiKey, ApiKeyList, CreatedApiKey)


def describe(app: FastAPI) -> None:
    """Have `/openapi.json` answer with the completed document, made once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to extend the document


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        routes=app.routes,
        tags=TAGS,
        servers=[{"url": "/"}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    schema = TypeAdapter(Problem).json_schema(ref_template="#/components/schemas/{model}")
    schemas = document["components"]["schemas"]
    schemas.update(schema.pop("$defs", {}))
    schemas["Problem"] = schema
    for model in HAVE_NULLS:
        schemas[model.__name__] |= model.model_config["json_schema_extra"]
    document["components"]["securitySchemes"] |= USER_TOKEN
    document["components"]["headers"] = {"X-Request-ID": REQUEST_ID}
    operations = {one["operationId"]: one for path in document["paths"].values() for one in path.values()}
    for operation in operations.values():
        _complete(operation)
    for operation_id, status, links in LINKS:
        operations[operation_id]["responses"][status]["links"] = links
    for schema in schemas.values():
        _leave_out_defaults(schema)
    return document


def _leave_out_defaults(schema: dict[str, Any]) -> None:
    """Of fields that callers send: generated clients take a default for a field that must be sent."""
    for name, field in schema.get("properties", {}).items():
        if name not in schema.get("required", ()):
            field.pop("default", None)


def _complete(operation: dict[str, Any]) -> None:
    operation.setdefault("security", [])  # said, so that nobody has to wonder whether it was forgotten
    access = ACCESS.get(operation["operationId"])
    if access is not None and access.own_user:
        _open_to_users(operation)
    responses = operation["responses"]
    responses.setdefault(str(BodyTooLarge.status), copy.deepcopy(BODY_TOO_LARGE))
    for response in responses.values():
        response.setdefault("headers", {})["X-Request-ID"] = {"$ref": "#/components/headers/X-Request-ID"}
    operation["responses"] = dict(sorted(responses.items()))
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])


def _open_to_users(operation: dict[str, Any]) -> None:
    operation["security"] = [*operation["security"], {name: [] for name in USER_TOKEN}]
    for parameter in operation["parameters"]:
        if parameter["name"] == "user_id":
            parameter["schema"] = parameter["schema"] | {"pattern": f"^({OWN_USER}|{USER_ID_PATTERN[2:]}"}
            parameter["description"] += f" With a user token also `{OWN_USER}`."


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter can be left out; no URL and no header holds a null."""
    match [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]:
        case [dict(kind)]:
            return kind | {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
    return schema
