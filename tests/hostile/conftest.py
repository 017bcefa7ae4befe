"""A service whose bounds are near, so that a test can pass them."""

from collections.abc import Iterator

import pytest

from tests.services import PATIENT, Service, running_service

HEAD_SECONDS = 0.8
BODY_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 2
MOST_CONNECTIONS = 20


@pytest.fixture(scope="session")
def bounded(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running_service(
        database_url,
        tmp_path_factory.mktemp("bounded"),
        default_device_limit=2,
        head_timeout_seconds=HEAD_SECONDS,
        body_timeout_seconds=BODY_SECONDS,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        max_connections=MOST_CONNECTIONS,
        **PATIENT,
    ) as running:
        yield running
