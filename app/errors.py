"""Everything that Cupo refuses or cannot do, each once, as facts; `problems.py` turns them into answers.

AppError
├── DeviceBlocked              403
├── NotFound                   404
│   ├── DeviceNotFound         404
│   ├── BlockNotFound          404
│   └── ApiKeyNotFound         404
├── MethodNotAllowed           405
├── RequestTimeout             408
├── DeviceLimitReached         409
├── DeviceAlreadyRegistered    409
├── IdempotencyKeyInUse        409
├── DeviceExpired              410
├── PreconditionFailed         412
├── BodyTooLarge               413
├── UnsupportedMediaType       415
├── MalformedRequest           400
├── MalformedJson              400
├── InvalidRequest             422
├── IdempotencyKeyReused       422
├── RegistrationRateExceeded   429
├── HeadTooLarge               431
├── InternalError              500
└── Unavailable                503, nothing was changed or the same call may be repeated
    ├── Contention
    ├── Overloaded
    └── DatabaseUnavailable

What is about the caller alone is in `auth/errors.py`, what is about webhooks in `webhooks/errors.py`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

MOST_NAMED = 100  # mistakes that one answer tells: a body has room for thousands


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


class ApiKeyNotFound(AppError):
    status, code, title = 404, "api_key_not_found", "API key not found"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"There is no API key {key_id}.")


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
        super().__init__("Send the body as «Content-Type: application/json», in UTF-8.")
        self.headers = {"Accept": "application/json"}  # RFC 9110, section 12.5.1


class MalformedRequest(AppError):
    """What came is not HTTP, or could be read in two ways. Nothing was done, and the connection is closed."""

    status, code, title = 400, "malformed_request", "Malformed request"


class RequestTimeout(AppError):
    """The client took too long to send its request. Nothing was done, and the connection is closed."""

    status, code, title = 408, "request_timeout", "Request timeout"

    def __init__(self, part: str, seconds: float) -> None:
        super().__init__(f"The {part} of the request did not arrive within {seconds:g} s.")


class HeadTooLarge(AppError):
    """The request line and the header fields are more than is read. The connection is closed."""

    status, code, title = 431, "request_header_fields_too_large", "Request header fields too large"

    def __init__(self, most_bytes: int, most_fields: int) -> None:
        super().__init__(
            f"Request line and headers may have at most {most_bytes} bytes and {most_fields} fields."
        )


class MalformedJson(AppError):
    status, code, title = 400, "malformed_json", "Malformed JSON"


class InvalidRequest(AppError):
    """What was sent is understood and wrong. `errors` has one entry for each mistake, up to 100."""

    status, code, title = 422, "invalid_request", "Invalid request"

    def __init__(self, errors: list[FieldError]) -> None:
        named = errors[:MOST_NAMED]
        number = f"{len(errors)}" if len(errors) < MOST_NAMED else f"{MOST_NAMED} or more"
        super().__init__(
            f"{number} of the values sent cannot be accepted; `errors` names {len(named)}.", errors=named
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

    def __init__(self, detail: str = "No database connection came free in time.") -> None:
        super().__init__(f"{detail} Nothing was changed.")


class DatabaseUnavailable(Unavailable):
    code, title = "database_unavailable", "Database unavailable"
    headers: Mapping[str, str] = {"Retry-After": "5"}

    def __init__(self) -> None:
        super().__init__("The database does not answer as it must. It is safe to repeat this call.")
