"""What it costs to know who calls: no statement, and next to no time."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Engine

from tests.auth.issuer import AUDIENCE, ISSUER, SigningKey, key_set
from tests.auth.keys import put_key
from tests.proxy import proxied
from tests.services import ROOT_KEY, Service, running_service
from tests.single_calls import NewUser

ROUNDS = 80
TRIES = 3  # other work on the machine makes a difference where there is none, and no try hides one
MOST = 1.10
REGISTRATION = ("SELECT", "SELECT", "INSERT", "INSERT", "COMMIT")

Headers = dict[str, str]


def bearer(credential: str) -> Headers:
    return {"Authorization": f"Bearer {credential}"}


class Caller:
    """One warm connection, without a client's own cost."""

    def __init__(self, service: Service) -> None:
        address = urlsplit(service.url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)

    def register(self, user: int, device: str, headers: Headers) -> float:
        """How many seconds a registration took."""
        body = json.dumps({"device_id": device})
        began = time.perf_counter()
        self._connection.request(
            "POST", f"/v1/users/{user}/devices", body, headers | {"Content-Type": "application/json"}
        )
        answer = self._connection.getresponse()
        answer.read()
        took = time.perf_counter() - began
        assert answer.status == 201
        return took

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def signers() -> list[SigningKey]:
    return [SigningKey(algorithm) for algorithm in ("RS256", "ES256", "EdDSA")]


@pytest.fixture
def settings_of_tokens(signers: list[SigningKey], folder: Path) -> dict[str, Any]:
    (folder / "keys.json").write_bytes(key_set(*signers))
    return {"jwks_file": folder / "keys.json", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


Credentials = Callable[[], dict[str, tuple[int, Headers]]]


@pytest.fixture
def credentials(auditor: Engine, new_user: NewUser, signers: list[SigningKey]) -> Credentials:
    """Of each kind: whom it registers devices for, and its header."""

    def made() -> dict[str, tuple[int, Headers]]:
        found = {
            "root key": (new_user(), bearer(ROOT_KEY)),
            "API key": (new_user(), bearer(put_key(auditor, "devices:write").token)),
        }
        for signer in signers:
            user = new_user()
            found[signer.algorithm] = user, bearer(signer.token(sub=str(user)))
        return found

    return made


@pytest.fixture
def unchecked(database_url: str, folder: Path, settings_of_tokens: dict[str, Any]) -> Iterator[Service]:
    settings = settings_of_tokens | {"default_device_limit": 10_000}
    with running_service(database_url, folder, application="tests.auth.unchecked:app", **settings) as running:
        yield running


def medians(service: Service, kinds: dict[str, tuple[int, Headers]]) -> dict[str, float]:
    """Of each kind, in seconds: one after the other in each round, each round beginning with another."""
    caller = Caller(service)
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    order = list(kinds)
    for number in range(ROUNDS):
        order.append(order.pop(0))
        for kind in order:
            user, headers = kinds[kind]
            taken[kind].append(caller.register(user, f"device-{number}", headers))
    caller.close()
    return {kind: median(seconds) for kind, seconds in taken.items()}


@pytest.mark.slow
@pytest.mark.timeout(300)  # three tries on a busy machine
def test_authentication_adds_at_most_a_tenth_to_the_median_of_a_registration(
    unchecked: Service, credentials: Credentials, new_user: NewUser
) -> None:
    tries = []
    for _ in range(TRIES):
        kinds = {"none": (new_user(), {"X-Unchecked": "1"})} | credentials()
        found = medians(unchecked, kinds)
        tries.append({kind: seconds / found["none"] for kind, seconds in found.items()})
        if max(tries[-1].values()) <= MOST:
            return
    raise AssertionError(tries)


@pytest.mark.locking
def test_authentication_adds_no_statement_to_a_registration(
    database_url: str,
    folder: Path,
    settings_of_tokens: dict[str, Any],
    credentials: Credentials,
) -> None:
    with (
        proxied(database_url) as (proxy, url),
        running_service(url, folder, database_pool_size=1, **settings_of_tokens) as service,
    ):
        caller = Caller(service)
        for kind, (user, headers) in credentials().items():
            caller.register(user, "first", headers)
            if kind == "API key":
                _wait_until_noted(proxy.statements)
            proxy.statements.clear()
            caller.register(user, "second", headers)
            words = tuple(statement.split(maxsplit=1)[0] for statement in proxy.statements)
            assert words == REGISTRATION, kind
        caller.close()


def _wait_until_noted(statements: list[str]) -> None:
    """The use of a key is written once a minute, after the answer, and by nobody's leave."""
    for _ in range(1000):
        noted = [number for number, one in enumerate(statements) if one.startswith("UPDATE api_keys")]
        if noted and "COMMIT" in statements[noted[0] :]:
            return
        threading.Event().wait(0.01)
    raise AssertionError(statements)
