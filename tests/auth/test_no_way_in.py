"""Over HTTP: whatever is wrong with a credential, the answer is the same 401, and nothing else happens."""

import base64
import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests import raw
from tests.auth.bad_tokens import ALL, EC, NOW, STRANGER
from tests.auth.issuer import AUDIENCE, ISSUER, Publisher, SigningKey, key_set, published
from tests.problems import assert_problem, refused_quietly
from tests.services import PATIENT, ROOT_KEY, Service, running_service

GOOD = EC.token()
LET_IN = f"Authorization: Bearer {GOOD}".encode()
CHALLENGE = 'Bearer realm="cupo", error="invalid_token"'


def can_be_in_a_header(token: str) -> bool:
    return 0 < len(token) < 16_000 and token.isprintable() and token.strip() == token and _is_latin(token)


def _is_latin(token: str) -> bool:
    return all(ord(character) < 256 for character in token)


def ask(service: Service, *headers: bytes, target: str = "/v1/users/42/devices") -> raw.Answer:
    return raw.send(service, raw.request("GET", target, *headers, key=None))


def test_a_good_token_is_let_in(token_service: Service) -> None:
    assert ask(token_service, LET_IN).status == 200


def test_every_bad_token_has_the_same_answer_and_leaves_nothing(
    token_service: Service, auditor: Engine
) -> None:
    told = set()
    sent = {name: token for name, token in ALL.items() if can_be_in_a_header(token)}
    assert len(sent) > len(ALL) - 15
    with refused_quietly(token_service, auditor):
        for name, token in sent.items():
            answer = ask(token_service, b"Authorization: Bearer " + token.encode("latin-1"))
            assert answer.status == 401, name
            problem = assert_problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == CHALLENGE, name
            assert token.encode("latin-1") not in answer.body, name
            told.add(json.dumps(problem | {"request_id": ""}))
    assert len(told) == 1
    log = token_service.logged()
    assert [name for name, token in sent.items() if len(token) > 20 and token in log] == []


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (b"Authorization:",),
        (b"Authorization: Bearer",),
        (b"Authorization: Bearer ",),
        (b"Authorization: " + GOOD.encode(),),
        (b"Authorization: Bearer\t" + GOOD.encode(),),
        (b"Authorization: Token " + GOOD.encode(),),
        (b"Authorization: JWT " + GOOD.encode(),),
        (b"Authorization: Basic " + base64.b64encode(b"42:" + GOOD.encode()),),
        (b"Authorization: Bearer Bearer " + GOOD.encode(),),
        (b'Authorization: Bearer "' + GOOD.encode() + b'"',),
        (b"Authorization: Bearer " + GOOD.encode() + b", Bearer " + GOOD.encode(),),
        (b"Authorization: Bearer " + GOOD.encode() + b" x",),
        (b"X-Authorization: Bearer " + GOOD.encode(),),
        (b"Cookie: access_token=" + GOOD.encode(),),
        (LET_IN, LET_IN),
        (LET_IN, b"authorization: Bearer " + ROOT_KEY.encode()),
        (b"Authorization: Bearer " + ROOT_KEY.encode(), b"Authorization: Bearer " + ROOT_KEY.encode()),
        (b"Authorization:", LET_IN),
    ],
    ids=lambda headers: repr(b" | ".join(headers).replace(GOOD.encode(), b"..."))[2:60],
)
def test_a_good_token_in_the_wrong_place_lets_nobody_in(
    token_service: Service, headers: tuple[bytes, ...]
) -> None:
    answer = ask(token_service, *headers)
    assert_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith('Bearer realm="cupo"')


@pytest.mark.parametrize("name", ["access_token", "token", "authorization", "jwt"])
def test_a_token_in_the_query_is_none_and_is_told_to_nobody(token_service: Service, name: str) -> None:
    answer = ask(token_service, target=f"/v1/users/42/devices?{name}={GOOD}")
    assert_problem(answer, 401, "unauthenticated")
    assert GOOD.encode() not in answer.body
    assert GOOD not in token_service.logged()


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER", b"bEaReR"])
def test_the_scheme_has_no_case(token_service: Service, scheme: bytes) -> None:
    assert ask(token_service, b"Authorization: " + scheme + b" " + GOOD.encode()).status == 200


@pytest.mark.parametrize("size", [2**20, 20_000])
@pytest.mark.parametrize("name", [b"Authorization", b"authorization"])
def test_a_token_of_a_megabyte_gets_no_further_than_the_head(
    token_service: Service, size: int, name: bytes
) -> None:
    answer = ask(token_service, name + b": Bearer " + b"a" * size + b".b.c")
    assert_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == CHALLENGE
    assert ask(token_service, LET_IN).status == 200


def test_an_app_is_told_that_its_token_has_expired_and_a_forger_is_not(token_service: Service) -> None:
    answer = ask(token_service, b"Authorization: Bearer " + EC.token(exp=NOW - 3600).encode())
    assert "expired" in assert_problem(answer, 401, "unauthenticated")["detail"]
    assert answer.headers["www-authenticate"] == f'{CHALLENGE}, error_description="expired"'
    forged = ask(token_service, b"Authorization: Bearer " + STRANGER.token(exp=NOW - 3600).encode())
    assert "expired" not in assert_problem(forged, 401, "unauthenticated")["detail"]
    assert forged.headers["www-authenticate"] == CHALLENGE


def test_no_address_in_a_token_is_called(token_service: Service, publisher: Publisher) -> None:
    asked = publisher.asked
    for header in ("jku", "x5u"):
        evil = {header: publisher.url, "alg": "ES256", "kid": "ES256"}
        ask(token_service, b"Authorization: Bearer " + STRANGER.token(header=evil).encode())
    assert publisher.asked == asked


def test_a_service_that_never_had_keys_says_so_and_keys_work_on(database_url: str, folder: Path) -> None:
    with _taking_tokens(database_url, folder, "http://127.0.0.1:9/jwks.json") as service:
        answer = ask(service, LET_IN)
        assert_problem(answer, 503, "token_keys_unavailable")
        assert answer.headers["retry-after"] == "30"
        assert ask(service, b"Authorization: Bearer " + ROOT_KEY.encode()).status == 200
        assert "127.0.0.1:9/jwks.json: " in service.logged()
        assert "Traceback" not in service.logged()


def test_keys_change_while_the_service_runs_and_its_issuer_goes_away(database_url: str, folder: Path) -> None:
    old, new = SigningKey("RS256"), SigningKey("RS256")
    with published(key_set(old)) as publisher, _taking_tokens(database_url, folder, publisher.url) as service:

        def status(key: SigningKey) -> int:
            return ask(service, b"Authorization: Bearer " + key.token().encode()).status

        assert status(old) == 200
        publisher.document = key_set(old, new)
        assert [status(new), status(new), status(old)] == [200] * 3
        assert publisher.asked == 2
        assert [status(SigningKey("RS256")) for _ in range(3)] == [401] * 3
        assert publisher.asked == 2
        publisher.status = 500
        assert [status(new), status(old), status(SigningKey("RS256"))] == [200, 200, 401]


def _taking_tokens(database_url: str, folder: Path, jwks_url: str) -> AbstractContextManager[Service]:
    return running_service(
        database_url, folder, jwks_url=jwks_url, jwt_issuer=ISSUER, jwt_audience=AUDIENCE, **PATIENT
    )
