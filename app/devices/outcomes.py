"""What registrations become, as the metrics count them."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.devices.service import Registered
from app.errors import AppError, DeviceBlocked, DeviceLimitReached, RegistrationRateExceeded
from app.metrics import REGISTRATIONS, RegistrationOutcome
from app.recording import current_calls

REFUSALS: dict[type[AppError], RegistrationOutcome] = {
    DeviceBlocked: "blocked",
    DeviceLimitReached: "refused",
    RegistrationRateExceeded: "churn",
}


def outcome_of(done: Registered) -> RegistrationOutcome:
    if not done.created:
        return "known"
    if done.replaced:
        return "replaced"
    return "evicted" if done.evicted else "created"


@contextmanager
def counted_registration() -> Iterator[None]:
    """Count what the registration inside became, once that is final: committed, or refused.

    An answer that was kept and is given again is no registration.
    """
    try:
        yield
    except tuple(REFUSALS) as refusal:
        REGISTRATIONS.labels(REFUSALS[type(refusal)]).inc()
        raise
    for call in current_calls():
        if call.registration is not None:
            REGISTRATIONS.labels(call.registration).inc()
