"""Registers a device by the Python client that test_clients.py has generated: register.py url key user_id."""

import json
import sys

from cupo_client import AuthenticatedClient  # type: ignore[import-not-found]
from cupo_client.api.devices import register_device  # type: ignore[import-not-found]
from cupo_client.models import NewDevice, Registration  # type: ignore[import-not-found]

url, key, user_id = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=key) as client:
    answer = register_device.sync_detailed(
        user_id, client=client, body=NewDevice(device_id="from-python", name="Ana 📱")
    )
assert isinstance(answer.parsed, Registration), answer
print(  # noqa: T201 - for the test
    json.dumps(
        {
            "status": answer.status_code,
            "device_id": answer.parsed.device.device_id,
            "name": answer.parsed.device.name,
            "used": answer.parsed.quota.used,
        }
    )
)
