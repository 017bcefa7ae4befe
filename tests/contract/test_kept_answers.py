"""Idempotency-Key: one effect, and the first answer again for the same call with the same key."""

from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from tests import raw
from tests.problems import problem_of
from tests.services import Service
from tests.single_calls import NewUser, address, happened, listed, register

KEPT_HEADERS = ("content-type", "etag", "location")


def post(api: httpx.Client, path: str, key: str, body: Any = None) -> httpx.Response:
    return api.post(path, json=body, headers={"Idempotency-Key": key})


def devices(user: int) -> str:
    return f"/v1/users/{user}/devices"


def age(auditor: Engine, user: int, hours: int) -> None:
    """Have the user's kept answers be older."""
    query = text(
        "UPDATE idempotency_keys SET answered_at = answered_at - INTERVAL :hours HOUR WHERE user_id = :user"
    )
    with auditor.connect() as connection:
        assert connection.execute(query, {"user": user, "hours": hours}).rowcount == 1


def test_the_first_answer_is_given_again_and_nothing_happens_twice(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    first = post(api, devices(user), "k", {"name": "𝌆 携帯"})
    assert first.status_code == 201
    assert "idempotent-replayed" not in first.headers
    api.delete(first.headers["location"])
    for _ in range(2):
        again = post(api, devices(user), "k", {"name": "𝌆 携帯"})
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["idempotent-replayed"] == "true"
        assert [again.headers[name] for name in KEPT_HEADERS] == [
            first.headers[name] for name in KEPT_HEADERS
        ]
        assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert listed(api, user) == []
    assert [kind for kind, _ in happened(api, user)] == ["device.registered", "device.revoked"]


def test_each_kind_of_post_is_answered_again(api: httpx.Client, new_user: NewUser) -> None:
    user, other = new_user(), new_user()
    register(api, user, device_id="a")
    beats = [post(api, address(user, "a", "/heartbeat"), "k") for _ in range(2)]
    assert beats[0].json() == beats[1].json()
    assert api.post(address(user, "a", "/heartbeat")).json() != beats[0].json()
    body = {"to_user_id": str(other)}
    moves = [post(api, address(user, "a", "/transfer"), "k", body) for _ in range(2)]
    assert [move.status_code for move in moves] == [200, 200]
    register(api, user, device_id="a")
    api.delete(address(user, "a"), params={"block": True})
    lifts = [post(api, address(user, "a", "/allow"), "k") for _ in range(2)]
    assert [lift.status_code for lift in lifts] == [204, 204]
    assert "content-type" not in lifts[1].headers
    for first, again in (beats, moves, lifts):
        assert "idempotent-replayed" not in first.headers
        assert (again.headers["idempotent-replayed"], again.content) == ("true", first.content)


@pytest.mark.parametrize(
    ("key", "same"), [("abc", '"abc"'), ('"a b"', "a b"), ("k" * 255, '"' + "k" * 255 + '"')]
)
def test_a_quoted_key_and_a_bare_one_are_the_same(
    api: httpx.Client, new_user: NewUser, key: str, same: str
) -> None:
    user = new_user()
    answers = [post(api, devices(user), one, {"device_id": "a"}) for one in (key, same)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1].headers["idempotent-replayed"] == "true"


def test_keys_are_compared_byte_for_byte(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    answers = [post(api, devices(user), key, {"device_id": "a"}) for key in ("k", "K", "k!", "k k")]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
    assert not any("idempotent-replayed" in answer.headers for answer in answers)


def test_a_key_is_of_one_path(api: httpx.Client, new_user: NewUser) -> None:
    user, other = new_user(), new_user()
    assert post(api, devices(user), "k", {"device_id": "a"}).status_code == 201
    assert post(api, devices(other), "k", {"device_id": "a"}).status_code == 201
    beat = post(api, address(user, "a", "/heartbeat"), "k")
    assert "idempotent-replayed" not in beat.headers
    assert (listed(api, user), listed(api, other)) == (["a"], ["a"])


def test_the_same_key_with_another_request_is_422(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    first = post(api, devices(user), "k", {"device_id": "a"})
    for other in ({"device_id": "b"}, {"device_id": "a", "name": None}, {}):
        problem_of(post(api, devices(user), "k", other), 422, "idempotency_key_reused")
    assert listed(api, user) == ["a"]
    assert post(api, devices(user), "k", {"device_id": "a"}).content == first.content


def test_a_refusal_is_not_kept_so_the_key_may_succeed_later(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id)
    body = {"device_id": "c"}
    for _ in range(2):
        refused = post(api, devices(user), "k", body)
        problem_of(refused, 409, "device_limit_reached")
        assert "idempotent-replayed" not in refused.headers
    api.delete(address(user, "a"))
    registered = post(api, devices(user), "k", body)
    assert (registered.status_code, "idempotent-replayed" in registered.headers) == (201, False)
    assert post(api, devices(user), "k", body).headers["idempotent-replayed"] == "true"


def test_a_bad_request_uses_no_key_up(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    assert post(api, devices(user), "k", {"nmae": "typo"}).status_code == 422
    assert post(api, devices(user), "k", {"name": "right"}).status_code == 201


def test_an_answer_is_kept_for_24_hours(api: httpx.Client, auditor: Engine, new_user: NewUser) -> None:
    user = new_user()
    body = {"device_id": "a"}
    post(api, devices(user), "k", body)
    age(auditor, user, hours=23)
    assert post(api, devices(user), "k", body).headers["idempotent-replayed"] == "true"
    age(auditor, user, hours=1)
    anew = post(api, devices(user), "k", {"device_id": "b"})
    assert (anew.status_code, "idempotent-replayed" in anew.headers) == (201, False)
    assert post(api, devices(user), "k", {"device_id": "b"}).content == anew.content


def test_a_key_is_one_whatever_host_the_call_names(
    service: Service, api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    for host in (b"Host: cupo.test", b"Host: [::1", b"Host: x/../y?z#", b"Host: \xff"):
        request = raw.request(
            "POST",
            devices(user),
            b"Content-Type: application/json",
            b"Idempotency-Key: k",
            body=b'{"device_id": "a"}',
        )
        assert raw.send(service, request.replace(b"Host: cupo.test", host)).status == 201
    assert happened(api, user) == [("device.registered", "a")]
