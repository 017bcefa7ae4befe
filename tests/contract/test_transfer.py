"""A transfer moves a device to another user, whole, under that user's limit; a refused one moves nothing."""

import httpx
import pytest
from sqlalchemy import Engine

from tests.problems import problem_of
from tests.single_calls import (
    NewUser,
    address,
    end_lease,
    happened,
    listed,
    quota_of,
    register,
    row_of,
    set_limit,
    trail,
)


def transfer(api: httpx.Client, user: int, device_id: str, to: int, **headers: str) -> httpx.Response:
    path = address(user, device_id, "/transfer")
    return api.post(path, json={"to_user_id": str(to)}, headers=headers)


@pytest.mark.parametrize("upwards", [True, False])
def test_a_device_moves_as_it_is_and_the_receivers_quota_is_told(
    api: httpx.Client, new_user: NewUser, upwards: bool
) -> None:
    first, second = new_user(), new_user()
    giver, receiver = (first, second) if upwards else (second, first)
    before = register(api, giver, device_id="a", name="𝌆", metadata={"n": 1.0}, lease_seconds=600).json()[
        "device"
    ]
    answer = transfer(api, giver, "a", receiver)
    assert (answer.status_code, answer.headers["etag"]) == (200, '"1"')
    assert answer.json() == {
        "device": before | {"user_id": str(receiver)},
        "quota": {"limit": 2, "used": 1, "remaining": 1, "source": "default"},
    }
    assert api.get(address(receiver, "a")).json() == answer.json()["device"]
    problem_of(api.get(address(giver, "a")), 404, "device_not_found")
    assert quota_of(api, giver)["used"] == 0
    problem_of(api.post(address(giver, "a", "/heartbeat")), 404, "device_not_found")
    assert api.post(address(receiver, "a", "/heartbeat")).status_code == 200


def test_a_transfer_is_in_the_trails_of_both(api: httpx.Client, new_user: NewUser) -> None:
    giver, receiver = new_user(), new_user()
    register(api, giver, device_id="a")
    answer = transfer(api, giver, "a", receiver)
    for user in (giver, receiver):
        event = trail(api, user)[-1]
        assert (event["type"], event["device_id"]) == ("device.transferred", "a")
        assert event["data"] == {"from_user_id": str(giver), "to_user_id": str(receiver)}
        assert event["request_id"] == answer.headers["x-request-id"]
    assert happened(api, receiver) == [("device.transferred", "a")]


def test_user_ids_above_2_to_the_63_are_transferred_to(api: httpx.Client, new_user: NewUser) -> None:
    giver, receiver = new_user(), 2**64 - 1 - new_user()
    register(api, giver, device_id="a")
    assert transfer(api, giver, "a", receiver).json()["device"]["user_id"] == str(receiver)
    assert listed(api, receiver) == ["a"]


def test_a_receiver_who_is_full_keeps_the_device_where_it_is(api: httpx.Client, new_user: NewUser) -> None:
    giver, receiver = new_user(), new_user()
    register(api, giver, device_id="a")
    for device_id in ("x", "y"):
        register(api, receiver, device_id=device_id)
    problem = problem_of(transfer(api, giver, "a", receiver), 409, "device_limit_reached")
    assert [problem[fact] for fact in ("limit", "used", "need_to_remove")] == [2, 2, 1]
    assert problem["devices"] == f"/v1/users/{receiver}/devices"
    assert (listed(api, giver), listed(api, receiver)) == (["a"], ["x", "y"])
    set_limit(api, receiver, 3)
    answer = transfer(api, giver, "a", receiver)
    assert answer.json()["quota"] == {"limit": 3, "used": 3, "remaining": 0, "source": "override"}


def test_at_the_giver_no_limit_matters(api: httpx.Client, new_user: NewUser) -> None:
    giver, receiver = new_user(), new_user()
    register(api, giver, device_id="a")
    set_limit(api, giver, 0)
    assert transfer(api, giver, "a", receiver).status_code == 200


def test_what_has_expired_at_the_receiver_makes_room(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    giver, receiver = new_user(), new_user()
    register(api, giver, device_id="a")
    for device_id in ("a", "x"):
        register(api, receiver, device_id=device_id, lease_seconds=60)
    end_lease(auditor, receiver, "a", "x")
    answer = transfer(api, giver, "a", receiver)
    assert (answer.status_code, answer.json()["quota"]["used"]) == (200, 1)
    assert row_of(auditor, receiver, "x") is None
    assert happened(api, receiver)[2:] == [
        ("device.expired", "a"),
        ("device.expired", "x"),
        ("device.transferred", "a"),
    ]


def test_a_receiver_who_has_a_device_of_that_id_gets_no_second_one(
    api: httpx.Client, new_user: NewUser
) -> None:
    giver, receiver = new_user(), new_user()
    register(api, giver, device_id="a", name="the giver's")
    register(api, receiver, device_id="a", name="the receiver's")
    problem_of(transfer(api, giver, "a", receiver), 409, "device_already_registered")
    assert api.get(address(giver, "a")).json()["name"] == "the giver's"
    assert api.get(address(receiver, "a")).json()["name"] == "the receiver's"


def test_to_whom_it_has_is_no_transfer(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    register(api, user, device_id="a")
    problem_of(transfer(api, user, "a", user), 409, "device_already_registered")
    problem_of(transfer(api, user, "none", user), 404, "device_not_found")
    assert happened(api, user) == [("device.registered", "a")]


def test_a_device_that_the_receiver_has_blocked_does_not_come_by_transfer(
    api: httpx.Client, new_user: NewUser
) -> None:
    giver, receiver = new_user(), new_user()
    register(api, receiver, device_id="a")
    api.delete(address(receiver, "a"), params={"block": True})
    register(api, giver, device_id="a")
    problem_of(transfer(api, giver, "a", receiver), 403, "device_blocked")
    assert listed(api, giver) == ["a"]
    api.post(address(receiver, "a", "/allow"))
    assert transfer(api, giver, "a", receiver).status_code == 200


def test_a_device_that_is_not_there_cannot_be_transferred(api: httpx.Client, new_user: NewUser) -> None:
    giver, receiver = new_user(), new_user()
    problem_of(transfer(api, giver, "a", receiver), 404, "device_not_found")
    register(api, receiver, device_id="a")
    problem_of(transfer(api, giver, "a", receiver), 404, "device_not_found")
    assert listed(api, receiver) == ["a"]


def test_a_repeated_transfer_with_a_key_is_answered_again_and_without_one_is_404(
    api: httpx.Client, new_user: NewUser
) -> None:
    giver, receiver = new_user(), new_user()
    register(api, giver, device_id="a")
    first, again = (transfer(api, giver, "a", receiver, **{"Idempotency-Key": "move"}) for _ in range(2))
    assert (first.status_code, again.status_code, again.content) == (200, 200, first.content)
    assert (again.headers["idempotent-replayed"], again.headers["etag"]) == ("true", '"1"')
    problem_of(transfer(api, giver, "a", receiver), 404, "device_not_found")
