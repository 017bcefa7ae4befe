"""The ways out of a full account: replace a device, have some evicted, or be told how many must go."""

from typing import Any

import httpx
import pytest

from tests.problems import problem_of
from tests.single_calls import NewUser, address, happened, listed, quota_of, register, set_limit, trail


def fill(api: httpx.Client, user: int, *device_ids: str) -> None:
    for device_id in device_ids:
        assert register(api, user, device_id=device_id).status_code == 201


def ids(devices: list[Any]) -> list[str]:
    return [device["device_id"] for device in devices]


def test_a_replaced_device_gives_its_slot_to_the_new_one(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    fill(api, user, "a", "b")
    answer = register(api, user, device_id="c", replace_device_id="a")
    assert answer.status_code == 201
    assert (answer.json()["quota"]["used"], answer.json()["evicted"]) == (2, [])
    assert listed(api, user) == ["b", "c"]
    assert happened(api, user)[2:] == [("device.replaced", "a"), ("device.registered", "c")]
    assert {event["request_id"] for event in trail(api, user)[2:]} == {answer.headers["x-request-id"]}


def test_a_replace_works_below_the_limit_too(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    fill(api, user, "a")
    answer = register(api, user, device_id="b", replace_device_id="a")
    assert (answer.status_code, answer.json()["quota"]["used"]) == (201, 1)
    assert listed(api, user) == ["b"]


def test_a_repeated_replace_is_200_and_not_404(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    fill(api, user, "a", "b")
    statuses = [register(api, user, device_id="c", replace_device_id="a").status_code for _ in range(3)]
    assert statuses == [201, 200, 200]
    assert listed(api, user) == ["b", "c"]


def test_a_replace_of_a_device_that_is_not_there_changes_nothing(
    api: httpx.Client, new_user: NewUser
) -> None:
    user, other = new_user(), new_user()
    fill(api, user, "a")
    fill(api, other, "x")
    before = happened(api, user)
    for victim in ("none", "x", "b"):
        answer = register(api, user, device_id="b", replace_device_id=victim)
        problem_of(answer, 404, "device_not_found")
        assert victim in answer.json()["detail"]
    assert (listed(api, user), listed(api, other)) == (["a"], ["x"])
    assert happened(api, user) == before


def test_a_known_device_replaces_nothing_since_it_needs_no_slot(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    fill(api, user, "a", "b")
    for victim in ("a", "b"):
        assert register(api, user, device_id="a", replace_device_id=victim).status_code == 200
    assert listed(api, user) == ["a", "b"]


def test_above_a_lowered_limit_one_replace_is_not_enough(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    set_limit(api, user, 4)
    fill(api, user, "a", "b", "c", "d")
    set_limit(api, user, 2)
    answer = register(api, user, device_id="e", replace_device_id="a")
    problem = problem_of(answer, 409, "device_limit_reached")
    assert [problem[fact] for fact in ("limit", "used", "need_to_remove")] == [2, 4, 3]
    assert listed(api, user) == ["a", "b", "c", "d"], "the refusal has removed nothing"
    assert happened(api, user)[-1] == ("quota.changed", None)


def test_exactly_as_many_as_need_to_be_removed_make_room(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    set_limit(api, user, 4)
    fill(api, user, "a", "b", "c", "d")
    set_limit(api, user, 2)
    for device_id, missing in (("a", 3), ("b", 2), ("c", 1)):
        problem = problem_of(register(api, user, device_id="new"), 409, "device_limit_reached")
        assert problem["need_to_remove"] == missing
        assert api.delete(address(user, device_id)).status_code == 204
    assert register(api, user, device_id="new").status_code == 201


@pytest.mark.parametrize(("on_limit", "evicted"), [("evict_oldest", "a"), ("evict_least_recently_seen", "b")])
def test_at_the_limit_the_asked_for_device_is_evicted_and_named(
    api: httpx.Client, new_user: NewUser, on_limit: str, evicted: str
) -> None:
    user = new_user()
    fill(api, user, "a", "b")
    api.post(address(user, "a", "/heartbeat"))  # now b was seen less recently, and a is older
    gone = api.get(address(user, evicted)).json()
    answer = register(api, user, device_id="c", on_limit=on_limit)
    assert answer.status_code == 201
    assert answer.json()["evicted"] == [gone]
    assert answer.json()["quota"] == {"limit": 2, "used": 2, "remaining": 0, "source": "default"}
    assert sorted(listed(api, user)) == sorted({"a", "b", "c"} - {evicted})
    assert happened(api, user)[2:] == [("device.evicted", evicted), ("device.registered", "c")]


def test_nobody_is_evicted_while_there_is_room_or_for_a_device_that_is_known(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    fill(api, user, "a")
    for device_id, status in (("b", 201), ("a", 200), ("b", 200)):
        answer = register(api, user, device_id=device_id, on_limit="evict_oldest")
        assert (answer.status_code, answer.json()["evicted"]) == (status, [])
    assert listed(api, user) == ["a", "b"]


def test_to_reject_is_the_default_and_can_be_said(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    fill(api, user, "a", "b")
    for asked in ({}, {"on_limit": "reject"}):
        problem = problem_of(register(api, user, device_id="c", **asked), 409, "device_limit_reached")
        assert problem["devices"] == f"/v1/users/{user}/devices"
    assert listed(api, user) == ["a", "b"]


def test_above_a_lowered_limit_as_many_are_evicted_as_it_takes(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    set_limit(api, user, 5)
    fill(api, user, "a", "b", "c", "d", "e")
    set_limit(api, user, 2)
    answer = register(api, user, device_id="f", on_limit="evict_oldest")
    assert (answer.status_code, ids(answer.json()["evicted"])) == (201, ["a", "b", "c", "d"])
    assert answer.json()["quota"] == {"limit": 2, "used": 2, "remaining": 0, "source": "override"}
    assert listed(api, user) == ["e", "f"]


def test_a_replace_goes_before_an_eviction(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    fill(api, user, "a", "b")
    answer = register(api, user, device_id="c", replace_device_id="b", on_limit="evict_oldest")
    assert (answer.status_code, answer.json()["evicted"]) == (201, [])
    assert listed(api, user) == ["a", "c"]
    set_limit(api, user, 1)
    answer = register(api, user, device_id="d", replace_device_id="c", on_limit="evict_oldest")
    assert (answer.status_code, ids(answer.json()["evicted"])) == (201, ["a"])
    assert listed(api, user) == ["d"]


@pytest.mark.parametrize("way", [{}, {"on_limit": "evict_oldest"}, {"replace_device_id": "a"}])
def test_at_a_limit_of_0_nothing_that_is_removed_makes_room(
    api: httpx.Client, new_user: NewUser, way: dict[str, str]
) -> None:
    user = new_user()
    fill(api, user, "a")
    set_limit(api, user, 0)
    problem = problem_of(register(api, user, device_id="b", **way), 409, "device_limit_reached")
    assert [problem[fact] for fact in ("limit", "used", "need_to_remove")] == [0, 1, None]
    assert listed(api, user) == ["a"]
    assert register(api, user, device_id="a", **way).status_code == 200, "a known one needs no slot"


def test_devices_that_were_evicted_are_kept_in_an_answer_of_any_size(
    api: httpx.Client, new_user: NewUser
) -> None:
    """Beyond the 64 KiB that a TEXT column holds."""
    user = new_user()
    set_limit(api, user, 30)
    metadata = {"a": "x" * 4000}
    for one in range(30):
        assert register(api, user, device_id=f"d-{one}", metadata=metadata).status_code == 201
    set_limit(api, user, 1)
    body = {"device_id": "new", "on_limit": "evict_oldest"}
    answers = [
        api.post(f"/v1/users/{user}/devices", json=body, headers={"Idempotency-Key": "evict"})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert len(answers[0].json()["evicted"]) == 30
    assert answers[0].content == answers[1].content
    assert quota_of(api, user)["used"] == 1
