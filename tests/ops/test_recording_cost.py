"""What metrics and logs cost: a service with them beside one without, in turn, in one run."""

import logging
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.processes import processor_seconds
from tests.services import PATIENT, Service, running_service

log = logging.getLogger(__name__)

ROUNDS = 15
CALLS = 40
MOST_COST = 1.05
TRIES = 3


def seconds_of(service: Service, client: httpx.Client, users: list[int]) -> float:
    """Processor time of the service for a registration of each of these users."""
    before = processor_seconds(service.process.pid)
    for user in users:
        assert client.post(f"/v1/users/{user}/devices", json={"device_id": "a"}).status_code == 201
    return processor_seconds(service.process.pid) - before


@pytest.mark.slow
def test_metrics_and_logs_cost_at_most_5_percent(
    database_url: str, folder: Path, new_user: Callable[[], int]
) -> None:
    """By processor time, which is what bounds the throughput, and which others on the machine do not take."""
    with (
        running_service(database_url, folder, **PATIENT) as recorded,
        running_service(
            database_url, folder, command=("tests.ops.unrecorded", "serve"), **PATIENT
        ) as unrecorded,
        recorded.client() as one,
        unrecorded.client() as other,
    ):
        for _ in range(TRIES):
            cost = []
            for _ in range(ROUNDS):
                with_it = seconds_of(recorded, one, [new_user() for _ in range(CALLS)])
                without = seconds_of(unrecorded, other, [new_user() for _ in range(CALLS)])
                cost.append((with_it, without))
            ratio = sum(a for a, _ in cost) / sum(b for _, b in cost)
            log.warning("With metrics and logs a registration costs %.3f times what it costs without", ratio)
            if ratio <= MOST_COST:
                break
    assert ratio <= MOST_COST
