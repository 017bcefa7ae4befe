"""The use cases as the tests of transactions call them: limit 2, no lease, asked for by the tests."""

from app.db import Tx
from app.devices import changes, service
from app.devices.schemas import Device, NewDevice
from app.devices.service import Registered
from app.etags import Precondition
from app.events.queries import Done
from app.origin import Origin
from app.quotas.schemas import Quota
from app.settings import Settings

LIMIT = 2
ORIGIN = Origin("tests", "a-request")


def register(tx: Tx, user_id: int, device_id: str, **new: object) -> Registered:
    settings = Settings.model_construct(
        default_device_limit=LIMIT, default_lease_seconds=None, max_registrations_per_day=0
    )
    return service.register(tx, settings, ORIGIN, user_id, device_id, NewDevice.model_validate(new))


def revoke(tx: Tx, user_id: int, device_id: str) -> Done:
    return changes.revoke(tx, ORIGIN, user_id, device_id, Precondition())


def list_devices(tx: Tx, user_id: int) -> tuple[list[Device], Quota]:
    settings = Settings.model_construct(default_device_limit=LIMIT)
    return service.list_devices(tx, settings, user_id, None, 50)
