"""A block refuses one device of one user until it is allowed; then it is an ordinary device."""

import httpx

from tests.problems import problem_of
from tests.single_calls import NewUser, address, happened, listed, quota_of, register, trail


def block(api: httpx.Client, user: int, device_id: str) -> None:
    register(api, user, device_id=device_id)
    answer = api.delete(address(user, device_id), params={"block": "true", "reason": "stolen"})
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_blocked_device_is_refused_until_it_is_allowed_and_then_is_an_ordinary_one(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    block(api, user, "a")
    assert quota_of(api, user)["used"] == 0
    for body in ({}, {"on_limit": "evict_oldest"}, {"lease_seconds": 60}):
        problem_of(register(api, user, device_id="a", **body), 403, "device_blocked")
    allowed = api.post(address(user, "a", "/allow"))
    assert (allowed.status_code, allowed.content) == (204, b"")
    assert "content-type" not in allowed.headers
    assert register(api, user, device_id="a").status_code == 201
    assert api.post(address(user, "a", "/heartbeat")).status_code == 200
    assert api.delete(address(user, "a")).status_code == 204
    assert register(api, user, device_id="a").status_code == 201
    assert happened(api, user) == [
        ("device.registered", "a"),
        ("device.revoked", "a"),
        ("device.blocked", "a"),
        ("device.allowed", "a"),
        ("device.registered", "a"),
        ("device.revoked", "a"),
        ("device.registered", "a"),
    ]
    assert [event["reason"] for event in trail(api, user)[1:4]] == ["stolen", "stolen", None]


def test_a_device_can_be_blocked_again_after_it_was_allowed(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    for _ in range(2):
        block(api, user, "a")
        problem_of(register(api, user, device_id="a"), 403, "device_blocked")
        assert api.post(address(user, "a", "/allow")).status_code == 204


def test_a_block_is_of_one_device_of_one_user(api: httpx.Client, new_user: NewUser) -> None:
    user, other = new_user(), new_user()
    block(api, user, "a")
    assert register(api, user, device_id="A").status_code == 201
    assert register(api, other, device_id="a").status_code == 201
    problem_of(api.post(address(other, "a", "/allow")), 404, "not_found")
    problem_of(register(api, user, device_id="a"), 403, "device_blocked")


def test_what_is_not_blocked_cannot_be_allowed(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    problem_of(api.post(address(user, "a", "/allow")), 404, "not_found")
    register(api, user, device_id="a")
    problem_of(api.post(address(user, "a", "/allow")), 404, "not_found")
    assert listed(api, user) == ["a"]
    assert happened(api, user) == [("device.registered", "a")]


def test_only_a_registered_device_can_be_blocked(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    problem_of(api.delete(address(user, "a"), params={"block": True}), 404, "device_not_found")
    assert register(api, user, device_id="a").status_code == 201
    stale = api.delete(address(user, "a"), params={"block": True}, headers={"If-Match": '"7"'})
    problem_of(stale, 412, "precondition_failed")
    register(api, user, device_id="b")
    assert api.delete(address(user, "b"), params={"block": "false"}).status_code == 204
    assert register(api, user, device_id="b").status_code == 201
    assert listed(api, user) == ["a", "b"]


def test_a_blocked_device_takes_no_slot_and_replaces_nobody(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    block(api, user, "x")
    for device_id in ("a", "b"):
        assert register(api, user, device_id=device_id).status_code == 201
    for way in ({"replace_device_id": "a"}, {"on_limit": "evict_oldest"}):
        problem_of(register(api, user, device_id="x", **way), 403, "device_blocked")
    problem_of(register(api, user, device_id="c", replace_device_id="x"), 404, "device_not_found")
    assert listed(api, user) == ["a", "b"]


def test_a_heartbeat_of_a_blocked_device_is_404(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    block(api, user, "a")
    problem_of(api.post(address(user, "a", "/heartbeat")), 404, "device_not_found")
