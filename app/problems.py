"""Errors as answers: `application/problem+json` (RFC 9457), and what OpenAPI says of them."""

import logging
from typing import Any, NotRequired
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from typing_extensions import TypedDict

from app import errors
from app.auth import errors as caller_errors
from app.errors import AppError, FieldError
from app.webhooks import errors as webhook_errors

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
ETAG = {"ETag": {"description": "The revision in quotes.", "schema": {"type": "string"}, "example": '"1"'}}
EXAMPLE_REQUEST_ID = "0193b0a2-7c5f-7d31-9b1e-5f0f6a1d2c3b"


# Where the validator's own words are of Python, or of forms.
_DETAILS = {
    "missing": "is required",
    "extra_forbidden": "is not a field that can be sent here",
    "model_attributes_type": "must be a JSON object",
    "string_unicode": "must be Unicode text: it has half a surrogate pair",
}


class Problem(TypedDict):
    """An error. `code` is stable; `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    request_id: str
    errors: NotRequired[list[FieldError]]
    limit: NotRequired[int]
    used: NotRequired[int]
    need_to_remove: NotRequired[int | None]
    devices: NotRequired[str]
    state: NotRequired[str]


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE


def problem(error: AppError, instance: str, request_id: str) -> dict[str, Any]:
    return {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "instance": instance,
        "request_id": request_id,
        **error.facts,
    }


def answer(request: Request, error: AppError) -> ProblemResponse:
    request.state.code = error.code  # for the request's line in the log and the metrics
    instance = quote(request.scope["path"], safe="/~!$&'()*+,;=:@")
    return ProblemResponse(problem(error, instance, request.state.request_id), error.status, error.headers)


def install(app: FastAPI) -> None:
    """Answer with a problem document whatever goes wrong, the framework's own errors included."""
    app.add_exception_handler(AppError, _answer_app_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_framework_error)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(Exception, answer_bug)


async def _answer_app_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, AppError)  # noqa: S101 - it was registered for this type
    return answer(request, error)


async def _answer_validation_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it was registered for this type
    found = [_field_error(one) for one in error.errors()[: errors.MOST_NAMED]]
    # FastAPI checks a parameter, and reports it, once for each function that asks for it.
    unique = {tuple(one.items()): one for one in found}
    return answer(request, errors.InvalidRequest(list(unique.values())))


def _field_error(error: Any) -> FieldError:
    """Where and why. The value itself is not repeated: it may be large, or a secret in the wrong place."""
    location, *path = error["loc"]
    if path and path[-1] == "[key]":  # pydantic's way to say that the key is wrong, not what it leads to
        path.pop()
    return {
        "detail": _DETAILS.get(error["type"], error["msg"].removeprefix("Value error, ")),
        "location": location,
        "pointer": pointer_to(*path),
    }


def pointer_to(*path: str | int) -> str:
    """As RFC 6901 has it, sections 3 and 6, in the characters that a URI may have."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "#" + "".join("/" + quote(part, safe="~!$&'()*+,;=:@", errors="replace") for part in parts)


async def _answer_framework_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - it was registered for this type
    if isinstance(error.__cause__, AppError):  # FastAPI wraps whatever ended the reading of a body
        return answer(request, error.__cause__)
    if isinstance(error.__cause__, ClientDisconnect):
        return await _answer_nobody(request, error.__cause__)
    if error.status_code == errors.NotFound.status:
        return answer(request, errors.NotFound())
    if error.status_code == errors.MethodNotAllowed.status:
        return answer(request, errors.MethodNotAllowed(request.method, _allowed_methods(request)))
    log.error("The framework raised an error that has no problem of its own", exc_info=error)
    return answer(request, errors.InternalError())


async def _answer_nobody(request: Request, _: Exception) -> ProblemResponse:
    """The client has left before its body was there, which is no fault that the log should have."""
    return answer(request, errors.MalformedRequest("The body ended before its end."))


def _allowed_methods(request: Request) -> str:
    """Those of all routes at this path (RFC 9110, section 10.2.1); the router names only its first one's."""
    methods: set[str] = set()
    # What is mounted has been entered by now, which moved the root that routes are matched from.
    scope = {**request.scope, "root_path": request.scope.get("app_root_path", "")}
    for route in iter_route_contexts(request.app.routes):
        match, _ = route.matches(scope)
        if match is not Match.NONE:
            methods |= route.methods or {"GET"}  # what is mounted are files
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods))


async def answer_bug(request: Request, error: Exception) -> ProblemResponse:
    """A bare 500. The server logs the traceback after this."""
    log.error("Request %s failed by a fault of the service: %r", request.state.request_id, error)
    return answer(request, errors.InternalError())


DEVICE_NOT_FOUND = errors.DeviceNotFound(42, "3f6c1a50-phone")
DEVICE_LIMIT_REACHED = errors.DeviceLimitReached(42, limit=3, used=3)
EVICTION_NOT_ALLOWED = caller_errors.EvictionNotAllowed()
DEVICE_BLOCKED = errors.DeviceBlocked(42, "3f6c1a50-phone")
DEVICE_EXPIRED = errors.DeviceExpired(42, "3f6c1a50-phone")
BLOCK_NOT_FOUND = errors.BlockNotFound(42, "3f6c1a50-phone")
ALREADY_REGISTERED = errors.DeviceAlreadyRegistered(43, "3f6c1a50-phone")
RATE_EXCEEDED = errors.RegistrationRateExceeded(42, 10, 3600)
API_KEY_NOT_FOUND = errors.ApiKeyNotFound("k3v9x0q7m2ad")
SCOPE_NOT_HELD = caller_errors.ScopeNotHeld(["users:erase"])
ENDPOINT_NOT_FOUND = webhook_errors.EndpointNotFound(7)
ENDPOINT_LIMIT_REACHED = webhook_errors.EndpointLimitReached(100)
ENDPOINT_DISABLED = webhook_errors.EndpointDisabled(7)
DELIVERY_NOT_FOUND = webhook_errors.DeliveryNotFound(4711)
DELIVERY_IN_OTHER_STATE = webhook_errors.DeliveryInOtherState(4711, "delivered")
PRECONDITION_FAILED = errors.PreconditionFailed(2)
OF_A_KEY: tuple[AppError, ...] = (errors.IdempotencyKeyInUse(), errors.IdempotencyKeyReused())
OF_A_BODY: tuple[AppError, ...] = (
    errors.MalformedJson("The body is not JSON: Expecting value."),
    errors.BodyTooLarge(65_536),
    errors.UnsupportedMediaType(),
)
_ALWAYS: tuple[AppError, ...] = (
    caller_errors.Unauthenticated(),
    caller_errors.Forbidden("devices:write"),
    errors.InvalidRequest(
        [{"detail": "String should have at most 100 characters", "location": "body", "pointer": "#/name"}]
    ),
    errors.MalformedRequest("There must be one Host."),
    errors.RequestTimeout("body", 20),
    errors.HeadTooLarge(16_384, 100),
    errors.InternalError(),
    errors.Contention(),
    errors.Overloaded(),
    errors.DatabaseUnavailable(),
    caller_errors.TokenKeysUnavailable(),
)


def answers(*examples: AppError) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses=`: its own errors, each by an example, and those of every route under /v1."""
    responses: dict[int | str, dict[str, Any]] = {}
    for example in (*examples, *_ALWAYS):
        response = responses.setdefault(example.status, _response(example))
        # Told are the headers that each error of this status has.
        for name in response["headers"].keys() - example.headers.keys():
            del response["headers"][name]
        response["content"][MEDIA_TYPE]["examples"][example.code] = {
            "value": problem(example, "/v1/users/42/devices", EXAMPLE_REQUEST_ID)
        }
    return responses


def _response(error: AppError) -> dict[str, Any]:
    headers = {
        name: {"schema": {"type": "string"}, "example": value} for name, value in error.headers.items()
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        "description": error.title,
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": schema, "examples": {}}},
    }
