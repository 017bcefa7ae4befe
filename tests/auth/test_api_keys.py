"""API keys as their holders and their makers meet them."""

import hashlib
import math
import re
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from app.auth.scopes import SCOPES
from app.keys.token import ID_CHARACTERS, ID_LENGTH, SECRET_CHARACTERS, SECRET_LENGTH, new_token
from tests import raw
from tests.auth.keys import Key, ask_for_key, make_key, put_key, revoke_elsewhere
from tests.problems import assert_problem, mistakes, problem_of, refused_quietly
from tests.services import Service
from tests.single_calls import NewUser, register, trail

INVALID = 'Bearer realm="cupo", error="invalid_token"'


def read(api: httpx.Client, key: Key) -> Any:
    return api.get(f"/v1/api-keys/{key.id}").json()


def test_a_new_key_is_answered_201_with_its_address_and_its_token(api: httpx.Client) -> None:
    answer = ask_for_key(api, "quotas:write", "devices:read", name="  backend 🔑 ", expires_in_seconds=3600)
    assert answer.status_code == 201
    key, token = answer.json()["api_key"], answer.json()["token"]
    assert re.fullmatch(r"cupo_[a-z0-9]{12}_[A-Za-z0-9]{43}", token)
    assert token.split("_")[1] == key["id"]
    assert answer.headers["location"] == f"/v1/api-keys/{key['id']}"
    made, ends = (datetime.fromisoformat(key[name]) for name in ("created_at", "expires_at"))
    assert ends - made == timedelta(hours=1)
    assert key == {
        "id": key["id"],
        "name": "backend 🔑",
        "scopes": ["devices:read", "quotas:write"],
        "created_at": key["created_at"],
        "created_by": "root_key",
        "expires_at": key["expires_at"],
        "last_used_at": None,
        "revoked_at": None,
        "revoked_by": None,
    }
    assert api.get(answer.headers["location"]).json() == key


def test_a_key_without_an_end_has_none(api: httpx.Client) -> None:
    for fields in ({}, {"expires_in_seconds": None}):
        assert ask_for_key(api, "devices:read", **fields).json()["api_key"]["expires_at"] is None


def test_a_secret_has_256_bits_and_no_two_tokens_are_alike() -> None:
    assert SECRET_LENGTH * math.log2(len(SECRET_CHARACTERS)) > 256
    assert ID_LENGTH * math.log2(len(ID_CHARACTERS)) > 60
    tokens = [new_token() for _ in range(1000)]
    assert len({token.id for token in tokens}) == len({token.text for token in tokens}) == 1000
    assert all(token.text not in repr(token) for token in tokens)


def test_a_key_does_what_its_scopes_say_and_its_trail_names_it(
    service: Service, api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    key = make_key(api, "devices:write")
    with key.client(service) as client:
        assert register(client, user, device_id="a").status_code == 201
        problem = problem_of(client.get(f"/v1/users/{user}/devices"), 403, "forbidden")
    assert "devices:read" in problem["detail"]
    assert [event["actor"] for event in trail(api, user)] == [f"api_key:{key.id}"]


def test_a_token_is_kept_nowhere(service: Service, api: httpx.Client, auditor: Engine) -> None:
    key = make_key(api, "devices:read", "keys:manage")
    secret = key.token.rsplit("_", 1)[1]
    with key.client(service) as client:
        shown = [client.get("/v1/api-keys").text, client.get(f"/v1/api-keys/{key.id}").text]
        client.post("/v1/api-keys", json={"name": key.token})
    shown.append(service.logged())
    with auditor.connect() as connection:
        row = connection.execute(text("SELECT * FROM api_keys WHERE id = :id"), {"id": key.id}).one()
    digest = hashlib.sha256(key.token.encode()).digest()
    assert row.digest == digest
    assert secret not in str(row)
    for text_of_all in shown:
        assert secret not in text_of_all
        assert digest.hex() not in text_of_all
        assert "digest" not in text_of_all


def wrong_credentials(api: httpx.Client, auditor: Engine) -> dict[str, str]:
    key, other = make_key(api, *SCOPES), make_key(api, *SCOPES)
    expired, revoked = (
        put_key(auditor, "devices:read", expires_in_seconds=-1),
        put_key(auditor, "devices:read"),
    )
    revoke_elsewhere(auditor, revoked)
    secret = key.token.rsplit("_", 1)[1]
    return {
        "another's secret": f"cupo_{key.id}_{other.token.rsplit('_', 1)[1]}",
        "another's id": f"cupo_{other.id}_{secret}",
        "unknown id": f"cupo_{new_token().id}_{secret}",
        "expired": expired.token,
        "revoked": revoked.token,
        "cut off": key.token[:-1],
        "too long": key.token + "a",
        "upper case": key.token.upper(),
        "without its prefix": key.token.removeprefix("cupo_"),
        "id alone": f"cupo_{key.id}",
        "prefix alone": "cupo_",
        "injection": "cupo_' OR 1=1 -- _" + secret,
        "digest": hashlib.sha256(key.token.encode()).hexdigest(),
        "not ASCII": key.token[:-1] + "é",
        "nothing like it": "a" * 64,
        "very long": "cupo_" + "a" * 8000,
    }


def test_all_that_is_no_key_is_the_same_401(service: Service, api: httpx.Client, auditor: Engine) -> None:
    credentials = wrong_credentials(api, auditor)
    seen = set()
    with refused_quietly(service, auditor):
        for what, credential in credentials.items():
            header = b"Authorization: Bearer " + credential.encode("latin-1")
            answer = raw.send(service, raw.request("GET", "/v1/users/77/devices", header, key=None))
            problem = assert_problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == INVALID, what
            seen.add(str(sorted(problem.items() - {("request_id", problem["request_id"])})))
    assert len(seen) == 1


def test_a_key_ends_when_it_expires(service: Service, auditor: Engine) -> None:
    key = put_key(auditor, "devices:read", expires_in_seconds=3)
    with key.client(service) as client:
        assert client.get("/v1/users/77/devices").status_code == 200
        answer = client.get("/v1/users/77/devices")
        while answer.status_code == 200:  # ends by the time-out of the test at the latest
            answer = client.get("/v1/users/77/devices")
    problem_of(answer, 401, "unauthenticated")


def test_nobody_gives_what_they_do_not_have(service: Service, api: httpx.Client, auditor: Engine) -> None:
    key = make_key(api, "keys:manage", "devices:read")
    with key.client(service) as client:
        with refused_quietly(service, auditor):
            answer = ask_for_key(client, "devices:read", "users:erase", "quotas:write")
            problem = problem_of(answer, 403, "scope_not_held")
        made = ask_for_key(client, "devices:read", "keys:manage")
    assert "not quotas:write, users:erase" in problem["detail"]
    assert 'scope="quotas:write users:erase"' in answer.headers["www-authenticate"]
    assert made.status_code == 201
    assert made.json()["api_key"]["created_by"] == f"api_key:{key.id}"


def test_a_key_without_the_right_to_manage_keys_neither_makes_nor_sees_nor_ends_any(
    service: Service, api: httpx.Client, auditor: Engine
) -> None:
    key = make_key(api, *(scope for scope in SCOPES if scope != "keys:manage"))
    with key.client(service) as client, refused_quietly(service, auditor):
        for answer in (
            ask_for_key(client, "devices:read"),
            client.get("/v1/api-keys"),
            client.get(f"/v1/api-keys/{key.id}"),
            client.delete(f"/v1/api-keys/{key.id}"),
        ):
            problem_of(answer, 403, "forbidden")
    assert read(api, key)["revoked_at"] is None


def test_a_revoked_key_is_refused_at_once_and_stays_in_the_list(service: Service, api: httpx.Client) -> None:
    key, manager = make_key(api, "devices:read"), make_key(api, "keys:manage")
    with key.client(service) as client, manager.client(service) as revoker:
        assert client.get("/v1/users/77/devices").status_code == 200
        assert revoker.delete(f"/v1/api-keys/{key.id}").status_code == 204
        problem_of(client.get("/v1/users/77/devices"), 401, "unauthenticated")
    revoked = read(api, key)
    assert revoked["revoked_by"] == f"api_key:{manager.id}"
    assert api.delete(f"/v1/api-keys/{key.id}").status_code == 204
    assert read(api, key) == revoked, "who was first, and when, stays"
    assert revoked in api.get("/v1/api-keys", params={"limit": 100}).json()["items"]


def test_a_key_may_revoke_itself(service: Service, api: httpx.Client) -> None:
    key = make_key(api, "keys:manage")
    with key.client(service) as client:
        assert client.delete(f"/v1/api-keys/{key.id}").status_code == 204
        problem_of(client.delete(f"/v1/api-keys/{key.id}"), 401, "unauthenticated")


def test_a_key_that_is_not_there_is_404_and_an_id_that_is_none_422(api: httpx.Client) -> None:
    for method in ("GET", "DELETE"):
        problem_of(api.request(method, "/v1/api-keys/000000000000"), 404, "api_key_not_found")
        for key_id in (
            "a",
            "a" * 13,
            "ABCDEFGHIJKL",
            "abcdefghijk%20",
            "abcdefghijkl%0A",
            "%C3%A4bcdefghijk",
        ):
            assert mistakes(api.request(method, f"/v1/api-keys/{key_id}")) == [("path", "#/key_id")]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"scopes": ["devices:read"]}, "#/name"),
        ({"name": "", "scopes": ["devices:read"]}, "#/name"),
        ({"name": " \u3000", "scopes": ["devices:read"]}, "#/name"),
        ({"name": "a" * 101, "scopes": ["devices:read"]}, "#/name"),
        ({"name": "a\nb", "scopes": ["devices:read"]}, "#/name"),
        ({"name": None, "scopes": ["devices:read"]}, "#/name"),
        ({"name": "a"}, "#/scopes"),
        ({"name": "a", "scopes": []}, "#/scopes"),
        ({"name": "a", "scopes": "devices:read"}, "#/scopes"),
        ({"name": "a", "scopes": ["devices:reed"]}, "#/scopes/0"),
        ({"name": "a", "scopes": ["devices:read", "devices:read"]}, "#/scopes"),
        ({"name": "a", "scopes": ["devices:read"], "expires_in_seconds": 59}, "#/expires_in_seconds"),
        (
            {"name": "a", "scopes": ["devices:read"], "expires_in_seconds": 315_360_001},
            "#/expires_in_seconds",
        ),
        ({"name": "a", "scopes": ["devices:read"], "expires_in_seconds": "60"}, "#/expires_in_seconds"),
        ({"name": "a", "scopes": ["devices:read"], "expires_in_seconds": True}, "#/expires_in_seconds"),
        ({"name": "a", "scopes": ["devices:read"], "expires_at": "2030-01-01T00:00:00Z"}, "#/expires_at"),
    ],
)
def test_what_cannot_be_meant_is_422_and_makes_no_key(
    service: Service, api: httpx.Client, auditor: Engine, body: Any, pointer: str
) -> None:
    with refused_quietly(service, auditor):
        assert mistakes(api.post("/v1/api-keys", json=body)) == [("body", pointer)]


def test_the_list_is_in_pages_newest_first(api: httpx.Client) -> None:
    made = [make_key(api, "devices:read").id for _ in range(5)]
    found: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while len(found) < 6:
        page = api.get("/v1/api-keys", params=query).json()
        assert len(page["items"]) == 2
        found += [key["id"] for key in page["items"]]
        query["cursor"] = page["next_cursor"]
    assert found[:5] == made[::-1]
    assert mistakes(api.get("/v1/api-keys", params={"cursor": "x"})) == [("query", "#/cursor")]


def test_no_scope_that_is_none_can_be_written(auditor: Engine) -> None:
    for scopes in ("devices:reed", "devices:read,keys:manage", "*"):
        with pytest.raises(Exception, match="api_keys_scopes_are_known"):
            put_key(auditor, scopes)
    put_key(auditor, " ".join(SCOPES))


def test_the_answer_to_an_idempotency_key_is_one_caller_s_own(
    service: Service, api: httpx.Client, new_user: NewUser
) -> None:
    user, once = new_user(), {"Idempotency-Key": "one"}
    for key in (make_key(api, "devices:write"), make_key(api, "devices:write")):
        with key.client(service) as client:
            answer = client.post(f"/v1/users/{user}/devices", json={}, headers=once)
            assert answer.status_code == 201
            assert "idempotent-replayed" not in answer.headers
