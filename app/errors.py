"""Everything that Cupo refuses or cannot do, each once, as facts; `problems.py` turns them into answers.

AppError
├── Unauthenticated            401
├── Forbidden                  403
├── DeviceBlocked              403
├── NotFound                   404
│   ├── DeviceNotFound         404
│   ├── BlockNotFound          404
│   ├── EndpointNotFound       404
│   └── DeliveryNotFound       404
├── MethodNotAllowed           405
├── DeviceLimitReached         409
├── DeviceAlreadyRegistered    409
├── IdempotencyKeyInUse        409
├── EndpointLimitReached       409
├── EndpointDisabled           409
├── DeliveryInOtherState       409
├── DeviceExpired              410
├── PreconditionFailed         412
├── BodyTooLarge               413
├── UnsupportedMediaType       415
├── MalformedJson              400
├── InvalidRequest             422
├── IdempotencyKeyReused       422
├── RegistrationRateExceeded   429
├── InternalError              500
└── Unavailable                503, nothing was changed or the same call may be repeated
    ├── Contention
    ├── Overloaded
    └── DatabaseUnavailable
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12


class FieldError(TypedDict):
    """One mistake: why, in which part of the request, and where in it (RFC 6901, as a URI fragment)."""

    detail: str
    location: Literal["body", "path", "query", "header"]
    pointer: str


class AppError(Exception):
    """A call that ends without a 2xx. `facts` are the members that its problem document adds."""

    status: ClassVar[int]
    code: ClassVar[str]
    title: ClassVar[str]
    headers: Mapping[str, str] = {}

    def __init__(self, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts = facts


class Unauthenticated(AppError):
    status, code, title = 401, "unauthenticated", "Unauthenticated"
    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="cupo"'}  # RFC 6750, section 3

    def __init__(self) -> None:
        super().__init__("Send the header «Authorization: Bearer <key>» with a key that is valid.")


class Forbidden(AppError):
    """The caller is known and may not make this call."""

    status, code, title = 403, "forbidden", "Forbidden"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This call needs the scope {scope}.")
        challenge = f'Bearer realm="cupo", error="insufficient_scope", scope="{scope}"'
        self.headers = {"WWW-Authenticate": challenge}  # RFC 6750, section 3.1


class NotFound(AppError):
    status, code, title = 404, "not_found", "Not found"

    def __init__(self) -> None:
        super().__init__("There is nothing at this address.")


class DeviceNotFound(AppError):
    status, code, title = 404, "device_not_found", "Device not found"

    def __init__(self, user_id: int, device_id: str) -> None:
        super().__init__(f"User {user_id} has no device {device_id}.")


class BlockNotFound(AppError):
    status, code, title = 404, "not_found", "Not found"

    def __init__(self, user_id: int, device_id: str) -> None:
        super().__init__(f"Device {device_id} of user {user_id} is not blocked.")


class DeviceBlocked(AppError):
    """The device was revoked for good: it may not register for this user until it is allowed again."""

    status, code, title = 403, "device_blocked", "Device blocked"

    def __init__(self, user_id: int, device_id: str) -> None:
        super().__init__(f"Device {device_id} is blocked for user {user_id}.")


class MethodNotAllowed(AppError):
    status, code, title = 405, "method_not_allowed", "Method not allowed"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not allowed here; allowed: {allowed}.")
        self.headers = {"Allow": allowed}


class DeviceLimitReached(AppError):
    """The user has as many devices as the limit allows. Waiting does not help, so no Retry-After."""

    status, code, title = 409, "device_limit_reached", "Device limit reached"

    def __init__(self, user_id: int, limit: int, used: int) -> None:
        super().__init__(
            f"User {user_id} has {used} of {limit} devices.",
            limit=limit,
            used=used,
            # A limit of 0 has no room for anything, whatever is removed.
            need_to_remove=used - limit + 1 if limit else None,
            devices=f"/v1/users/{user_id}/devices",
        )


class DeviceAlreadyRegistered(AppError):
    status, code, title = 409, "device_already_registered", "Device already registered"

    def __init__(self, user_id: int, device_id: str) -> None:
        super().__init__(f"User {user_id} has a device {device_id} already.")


class IdempotencyKeyInUse(AppError):
    """The first call with this key is still running; its answer will be given again once it has one."""

    status, code, title = 409, "idempotency_key_in_use", "Idempotency key in use"
    headers: Mapping[str, str] = {"Retry-After": "1"}

    def __init__(self) -> None:
        super().__init__("Another call with this Idempotency-Key is still running.")


class EndpointNotFound(AppError):
    status, code, title = 404, "webhook_endpoint_not_found", "Webhook endpoint not found"

    def __init__(self, endpoint_id: int) -> None:
        super().__init__(f"There is no webhook endpoint {endpoint_id}.")


class DeliveryNotFound(AppError):
    status, code, title = 404, "webhook_delivery_not_found", "Webhook delivery not found"

    def __init__(self, delivery_id: int) -> None:
        super().__init__(f"There is no webhook delivery {delivery_id}.")


class EndpointLimitReached(AppError):
    status, code, title = 409, "webhook_endpoint_limit_reached", "Webhook endpoint limit reached"

    def __init__(self, limit: int) -> None:
        super().__init__(f"There are {limit} webhook endpoints already.", limit=limit)


class EndpointDisabled(AppError):
    """Nothing is sent to the endpoint until it is enabled again."""

    status, code, title = 409, "webhook_endpoint_disabled", "Webhook endpoint disabled"

    def __init__(self, endpoint_id: int) -> None:
        super().__init__(f"Webhook endpoint {endpoint_id} is disabled.")


class DeliveryInOtherState(AppError):
    """What was asked for is not done to a delivery in its state."""

    status, code, title = 409, "webhook_delivery_in_other_state", "Webhook delivery in another state"

    def __init__(self, delivery_id: int, state: str) -> None:
        super().__init__(f"Webhook delivery {delivery_id} is {state}.", state=state)


class DeviceExpired(AppError):
    """The device's lease ran out before this heartbeat. To come back, it registers again."""

    status, code, title = 410, "device_expired", "Device expired"

    def __init__(self, user_id: int, device_id: str) -> None:
        super().__init__(f"The lease of device {device_id} of user {user_id} has run out.")


class PreconditionFailed(AppError):
    status, code, title = 412, "precondition_failed", "Precondition failed"

    def __init__(self, revision: int) -> None:
        super().__init__(f"If-Match does not name the current revision, which is {revision}.")


class BodyTooLarge(AppError):
    status, code, title = 413, "body_too_large", "Body too large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"A body may have at most {limit_bytes} bytes.")


class UnsupportedMediaType(AppError):
    status, code, title = 415, "unsupported_media_type", "Unsupported media type"

    def __init__(self) -> None:
        super().__init__("Send the body as «Content-Type: application/json».")
        self.headers = {"Accept": "application/json"}  # RFC 9110, section 12.5.1


class MalformedJson(AppError):
    status, code, title = 400, "malformed_json", "Malformed JSON"


class InvalidRequest(AppError):
    """What was sent is understood and wrong. `errors` has one entry for each mistake."""

    status, code, title = 422, "invalid_request", "Invalid request"

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__(
            f"{len(errors)} of the values sent cannot be accepted; `errors` names each.", errors=errors
        )


class IdempotencyKeyReused(AppError):
    status, code, title = 422, "idempotency_key_reused", "Idempotency key reused"

    def __init__(self) -> None:
        super().__init__("This Idempotency-Key was sent before with another request.")


class RegistrationRateExceeded(AppError):
    """The user has registered as many new devices in 24 hours as may be."""

    status, code, title = 429, "registration_rate_exceeded", "Registration rate exceeded"

    def __init__(self, user_id: int, most: int, retry_after_seconds: int) -> None:
        super().__init__(f"User {user_id} has registered {most} new devices in 24 hours.")
        self.headers = {"Retry-After": str(retry_after_seconds)}


class InternalError(AppError):
    status, code, title = 500, "internal_error", "Internal error"

    def __init__(self) -> None:
        super().__init__("The fault is the service's. Its log has more under this request_id.")


class Unavailable(AppError):
    """The call could not be carried out now; repeating it is safe."""

    status = 503
    headers: Mapping[str, str] = {"Retry-After": "1"}


class Contention(Unavailable):
    code, title = "contention", "Contention"

    def __init__(self) -> None:
        super().__init__("Other calls for this user held its lock for too long. Nothing was changed.")


class Overloaded(Unavailable):
    code, title = "overloaded", "Overloaded"

    def __init__(self) -> None:
        super().__init__("No database connection came free in time. Nothing was changed.")


class DatabaseUnavailable(Unavailable):
    code, title = "database_unavailable", "Database unavailable"
    headers: Mapping[str, str] = {"Retry-After": "5"}

    def __init__(self) -> None:
        super().__init__("The database does not answer as it must. It is safe to repeat this call.")
