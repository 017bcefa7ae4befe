"""A user's own limit, its ETag, and the way back to the default."""

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.problems import problem_of
from tests.single_calls import NewUser, listed, quota_of, register, trail


def put(api: httpx.Client, user: int, limit: int, **headers: str) -> httpx.Response:
    return api.put(f"/v1/users/{user}/quota", json={"limit": limit}, headers=headers)


def reset(api: httpx.Client, user: int, **headers: str) -> httpx.Response:
    return api.delete(f"/v1/users/{user}/quota", headers=headers)


@pytest.mark.parametrize("limit", [0, 1, 2, 10_000])
def test_an_own_limit_counts_from_the_next_call_on(api: httpx.Client, new_user: NewUser, limit: int) -> None:
    user = new_user()
    answer = put(api, user, limit)
    assert (answer.status_code, answer.headers["etag"]) == (200, '"1"')
    assert answer.json() == {"limit": limit, "used": 0, "remaining": limit, "source": "override"}
    assert quota_of(api, user) == answer.json()
    assert api.get(f"/v1/users/{user}/devices").json()["quota"] == answer.json()
    assert register(api, user, device_id="a").status_code == (201 if limit else 409)
    assert quota_of(api, new_user())["limit"] == 2, "of nobody else"


def test_below_what_is_used_nobody_is_thrown_out_and_nobody_new_comes_in(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    put(api, user, 3)
    for device_id in ("a", "b", "c"):
        register(api, user, device_id=device_id)
    lowered = put(api, user, 1)
    assert lowered.json() == {"limit": 1, "used": 3, "remaining": 0, "source": "override"}
    assert listed(api, user) == ["a", "b", "c"]
    problem_of(register(api, user, device_id="d"), 409, "device_limit_reached")
    again = register(api, user, device_id="c")
    assert (again.status_code, again.json()["quota"]["remaining"]) == (200, 0)
    assert put(api, user, 4).status_code == 200
    assert register(api, user, device_id="d").status_code == 201


def test_back_to_the_default(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    put(api, user, 7)
    answer = reset(api, user)
    assert answer.status_code == 200
    assert answer.json() == {"limit": 2, "used": 0, "remaining": 2, "source": "default"}
    assert quota_of(api, user) == answer.json()


def test_the_revision_of_a_quota_never_goes_back(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    path = f"/v1/users/{user}/quota"
    assert api.get(path).headers["etag"] == '"0"'
    tags = [
        answer.headers["etag"]
        for answer in (
            put(api, user, 5),
            put(api, user, 5),  # changes nothing
            put(api, user, 2),  # the default's number, and yet the user's own
            reset(api, user),
            reset(api, user),
            put(api, user, 5),
            reset(api, user),
        )
    ]
    assert tags == ['"1"', '"1"', '"2"', '"3"', '"3"', '"4"', '"5"']
    assert api.get(path).headers["etag"] == '"5"'


def test_a_change_of_the_limit_is_an_event_and_a_repeat_is_none(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    path = f"/v1/users/{user}/quota"
    for _ in range(2):
        api.put(path, json={"limit": 5, "reason": " family plan "})
    for _ in range(2):
        api.delete(path, params={"reason": "plan ended"})
    events = trail(api, user)
    assert [(event["type"], event["device_id"], event["reason"]) for event in events] == [
        ("quota.changed", None, "family plan"),
        ("quota.changed", None, "plan ended"),
    ]
    assert events[0]["data"] == {"limit": 5, "source": "override", "limit_before": 2}
    assert events[1]["data"] == {"limit": 2, "source": "default", "limit_before": 5}


def test_a_reset_where_there_is_no_own_limit_is_200_and_writes_nothing(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    assert reset(api, user).json()["source"] == "default"
    with auditor.connect() as connection:
        query = text("SELECT COUNT(*) FROM user_quotas WHERE user_id = :user")
        assert connection.execute(query, {"user": user}).scalar_one() == 0
    assert trail(api, user) == []


@pytest.mark.parametrize(
    ("if_match", "status"),
    [
        ('"2"', 200),
        ("*", 200),
        ('"1" , "2"', 200),
        ('"1"', 412),
        ('"0"', 412),
        ('W/"2"', 412),
        ('"3"', 412),
        ('""', 412),
    ],
)
def test_if_match_lets_a_change_through_only_at_the_current_revision(
    api: httpx.Client, new_user: NewUser, if_match: str, status: int
) -> None:
    for set_anew in (True, False):
        user = new_user()
        put(api, user, 5)
        put(api, user, 6)
        headers = {"If-Match": if_match}
        answer = put(api, user, 9, **headers) if set_anew else reset(api, user, **headers)
        assert answer.status_code == status
        if status == 412:
            problem_of(answer, 412, "precondition_failed")
            assert quota_of(api, user)["limit"] == 6


def test_the_etag_of_a_quota_that_nobody_has_set_guards_the_first_change(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    first = api.get(f"/v1/users/{user}/quota").headers["etag"]
    assert put(api, user, 5, **{"If-Match": first}).status_code == 200
    problem_of(put(api, user, 6, **{"If-Match": first}), 412, "precondition_failed")
    problem_of(reset(api, user, **{"If-Match": first}), 412, "precondition_failed")
    assert quota_of(api, user)["limit"] == 5
