from collections.abc import Iterator

import pytest

from tests.auth.bad_tokens import PUBLISHED
from tests.auth.issuer import AUDIENCE, ISSUER, Publisher, published
from tests.services import PATIENT, Service, running_service


@pytest.fixture(scope="package")
def publisher() -> Iterator[Publisher]:
    """Publishes the keys that good tokens of `bad_tokens` are signed with."""
    with published(PUBLISHED) as publisher:
        yield publisher


@pytest.fixture(scope="package")
def token_service(
    database_url: str, tmp_path_factory: pytest.TempPathFactory, publisher: Publisher
) -> Iterator[Service]:
    """Takes user tokens; limit 2, else at its defaults."""
    with running_service(
        database_url,
        tmp_path_factory.mktemp("token_service"),
        default_device_limit=2,
        jwks_url=publisher.url,
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
        **PATIENT,
    ) as running:
        yield running
