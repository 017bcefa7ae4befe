"""What a user may do with a token of their own, and that it is all on themselves."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from app.auth.scopes import ACCESS
from tests import raw
from tests.auth.bad_tokens import EC, ED, PUBLISHED, RSA
from tests.auth.issuer import AUDIENCE, ISSUER
from tests.auth.test_access import VALUES, all_routes
from tests.problems import assert_problem, mistakes, problem_of, refused_quietly
from tests.services import PATIENT, Service, running_service
from tests.single_calls import NewUser, listed, register, trail

ROUTES = [
    pytest.param(name, method, path, id=name)
    for _, name, method, path in all_routes()
    if path.startswith("/v1")
]
ABOUT_A_USER = [
    pytest.param(method, path, id=name) for _, name, method, path in all_routes() if "{user_id}" in path
]
OWN = {name for name, access in ACCESS.items() if access.own_user}


def client_of(service: Service, user: int) -> httpx.Client:
    headers = {"Authorization": f"Bearer {EC.token(sub=str(user))}"}
    return httpx.Client(base_url=service.url, headers=headers, timeout=30)


def call(client: httpx.Client, method: str, path: str, user: object) -> httpx.Response:
    """A call that changes nothing, whoever makes it: it has a parameter that no route knows."""
    values = VALUES | {"user_id": str(user)}
    return client.request(method, re.sub(r"{(\w+)}", lambda name: values[name[1]], path), params={"no": "1"})


@pytest.fixture(scope="module")
def users_api(token_service: Service, new_user: NewUser) -> Iterator[tuple[int, httpx.Client]]:
    user = new_user()
    with client_of(token_service, user) as client:
        yield user, client


@pytest.mark.parametrize("key", [RSA, EC, ED], ids=lambda key: key.algorithm)
def test_a_token_of_each_algorithm_lets_its_user_in(
    token_service: Service, new_user: NewUser, key: Any
) -> None:
    user = new_user()
    answer = httpx.get(
        f"{token_service.url}/v1/users/me/devices",
        headers={"Authorization": f"bearer {key.token(sub=user)}"},
    )
    assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_a_user_keeps_their_own_devices_as_me_and_the_trail_says_who_it_was(
    token_service: Service, api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    with client_of(token_service, user) as mine:
        answer = mine.post("/v1/users/me/devices", json={"device_id": "phone"})
        assert answer.status_code == 201
        assert answer.headers["location"] == f"/v1/users/{user}/devices/phone"
        assert answer.json()["device"]["user_id"] == str(user)
        assert mine.patch("/v1/users/me/devices/phone", json={"name": "Mine"}).status_code == 200
        assert mine.post(f"/v1/users/{user}/devices/phone/heartbeat").status_code == 200
        assert mine.get("/v1/users/me/devices/phone").json()["name"] == "Mine"
        assert mine.get("/v1/users/me/quota").json()["used"] == 1
        assert mine.delete("/v1/users/me/devices/phone").status_code == 204
        assert mine.delete("/v1/users/me/devices").json() == {"revoked": 0}
        assert len(mine.get("/v1/users/me/events").json()["items"]) == 3
    assert {event["actor"] for event in trail(api, user)} == {f"user:{user}"}


@pytest.mark.parametrize(("name", "method", "path"), ROUTES)
def test_a_user_may_make_the_calls_that_are_for_users_on_themselves_and_no_others(
    users_api: tuple[int, httpx.Client], name: str, method: str, path: str
) -> None:
    user, client = users_api
    for named in (user, "me"):
        answer = call(client, method, path, named)
        if name in OWN:
            assert mistakes(answer) == [("query", "#/no")]
        else:
            problem = problem_of(answer, 403, "forbidden")
            assert "token" in problem["detail"]


@pytest.mark.parametrize(("method", "path"), ABOUT_A_USER)
def test_another_users_address_is_to_a_user_as_one_that_is_not_there(
    users_api: tuple[int, httpx.Client], api: httpx.Client, new_user: NewUser, method: str, path: str
) -> None:
    _, client = users_api
    known, stranger = new_user(), new_user()
    assert register(api, known, device_id="a-device").status_code == 201
    nowhere = problem_of(client.request(method, "/v1/there/is/nothing"), 404, "not_found")
    for named in (known, stranger, "nobody", 0):
        problem = problem_of(call(client, method, path, named), 404, "not_found")
        own = {"instance": nowhere["instance"], "request_id": nowhere["request_id"]}
        assert problem | own == nowhere
    assert listed(api, known) == ["a-device"]


OTHERWISE_WRITTEN = [
    *("0{id}", "+{id}", "-{id}", "{id}.0", "{id}%20", "%20{id}", "{id}%00", "{id}%0a", "{id};x"),
    *("ME", "Me", "me%20"),
]


@pytest.mark.parametrize("written", OTHERWISE_WRITTEN)
def test_no_other_way_to_write_an_id_is_a_way_round(
    token_service: Service, new_user: NewUser, written: str
) -> None:
    user = new_user()
    target = f"/v1/users/{written.format(id=user)}/devices"
    answer = raw.send(token_service, raw.request("GET", target, key=EC.token(sub=str(user))))
    assert answer.status in {400, 404}


def test_an_id_in_percent_encoded_digits_is_the_same_id(token_service: Service, new_user: NewUser) -> None:
    user = new_user()
    encoded = "".join(f"%{ord(digit):02x}" for digit in str(user))
    other = "".join(f"%{ord(digit):02x}" for digit in str(user + 1))
    for target, status in ((encoded, 200), ("%6d%65", 200), (other, 404)):
        request = raw.request("GET", f"/v1/users/{target}/devices", key=EC.token(sub=str(user)))
        assert raw.send(token_service, request).status == status


def test_me_is_nobody_where_a_key_calls(api: httpx.Client) -> None:
    answer = api.get("/v1/users/me/devices")
    assert mistakes(answer) == [("path", "#/user_id")]
    assert answer.json()["errors"][0]["detail"].endswith("only a user's own token has a user that is me")


def test_a_user_cannot_have_devices_evicted_and_nothing_is_changed(
    token_service: Service, api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    with client_of(token_service, user) as mine:
        for device in ("one", "two"):
            assert register(mine, user, device_id=device).status_code == 201
        with refused_quietly(token_service, auditor):
            for on_limit in ("evict_oldest", "evict_least_recently_seen"):
                for device in ("one", "three"):
                    answer = register(mine, user, device_id=device, on_limit=on_limit)
                    problem_of(answer, 403, "eviction_not_allowed")
            problem_of(
                register(mine, user, device_id="three", on_limit="reject"), 409, "device_limit_reached"
            )
        assert register(mine, user, device_id="three", replace_device_id="one").status_code == 201
    evicting = register(api, user, device_id="four", on_limit="evict_oldest")
    assert [device["device_id"] for device in evicting.json()["evicted"]] == ["two"]


@pytest.fixture(scope="module")
def lenient(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Keys from a file, users may evict, and no more than three new devices a day."""
    folder = tmp_path_factory.mktemp("lenient")
    (folder / "jwks.json").write_bytes(PUBLISHED)
    with running_service(
        database_url,
        folder,
        default_device_limit=2,
        max_registrations_per_day=3,
        user_tokens_may_evict=True,
        jwks_file=folder / "jwks.json",
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
        **PATIENT,
    ) as running:
        yield running


def test_a_setting_lets_users_evict(lenient: Service, new_user: NewUser) -> None:
    user = new_user()
    with client_of(lenient, user) as mine:
        for device in ("one", "two"):
            register(mine, user, device_id=device)
        evicting = register(mine, user, device_id="three", on_limit="evict_oldest")
        assert [device["device_id"] for device in evicting.json()["evicted"]] == ["one"]


def test_nothing_that_a_user_may_do_gets_past_the_daily_cap(lenient: Service, new_user: NewUser) -> None:
    user = new_user()
    with client_of(lenient, user) as mine:
        register(mine, user, device_id="one")
        assert mine.delete("/v1/users/me/devices/one").status_code == 204
        register(mine, user, device_id="two")
        register(mine, user, device_id="three", replace_device_id="two")
        assert mine.delete("/v1/users/me/devices").json() == {"revoked": 1}
        for forbidden in (
            mine.delete("/v1/users/me"),
            mine.put("/v1/users/me/quota", json={"limit": 9}),
            mine.post("/v1/users/me/devices/three/transfer", json={"to_user_id": str(user + 1)}),
        ):
            problem_of(forbidden, 403, "forbidden")
        for body in ({}, {"device_id": "one"}, {"on_limit": "evict_oldest"}, {"lease_seconds": 60}):
            for headers in ({}, {"Idempotency-Key": "another"}):
                answer = mine.post("/v1/users/me/devices", json=body, headers=headers)
                problem_of(answer, 429, "registration_rate_exceeded")


def test_an_idempotency_key_is_its_callers_own(
    token_service: Service, api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    call: dict[str, Any] = {"json": {"device_id": "phone"}, "headers": {"Idempotency-Key": "same"}}
    with client_of(token_service, user) as mine:
        first = mine.post(f"/v1/users/{user}/devices", **call)
        again = mine.post(f"/v1/users/{user}/devices", **call)
    by_key = api.post(f"/v1/users/{user}/devices", **call)
    assert [answer.headers.get("idempotent-replayed") for answer in (first, again, by_key)] == [
        None,
        "true",
        None,
    ]
    assert [answer.status_code for answer in (first, again, by_key)] == [201, 201, 200]


def test_where_no_keys_are_set_a_token_is_no_credential(service: Service) -> None:
    answer = raw.send(service, raw.request("GET", "/v1/users/me/devices", key=EC.token()))
    assert_problem(answer, 401, "unauthenticated")
