"""If-Match: a caller who looked before the last change changes nothing."""

from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from tests.callers import Call, at_once, in_rounds, one_by_one, register
from tests.lifecycle.trail import devices_of, types_of
from tests.services import Service
from tests.single_calls import row_of

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]


def change(user: int, name: str, revision: int | None = None) -> Call:
    headers = {} if revision is None else {"If-Match": f'"{revision}"'}
    return Call("PATCH", f"/v1/users/{user}/devices/a", {"name": name}, headers)


def put_quota(user: int, limit: int, revision: int) -> Call:
    return Call("PUT", f"/v1/users/{user}/quota", {"limit": limit}, {"If-Match": f'"{revision}"'})


@pytest.fixture
def user(service: Service, new_user: NewUser) -> int:
    """Has one device, `a`, at revision 2."""
    made = new_user()
    one_by_one(service, [register(made, "a"), change(made, "second")])
    return made


@pytest.mark.parametrize("tag", ['"1"', 'W/"2"', '"1", "3"'])
def test_a_device_is_neither_revoked_nor_changed_at_a_stale_if_match(
    tag: str, service: Service, auditor: Engine, user: int
) -> None:
    before = row_of(auditor, user, "a")
    path = f"/v1/users/{user}/devices/a"
    answers = one_by_one(
        service,
        [
            Call("DELETE", path, headers={"If-Match": tag}),
            Call("DELETE", f"{path}?block=true", headers={"If-Match": tag}),
            Call("PATCH", path, {"name": "third"}, {"If-Match": tag}),
        ],
    )
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (412, "precondition_failed")
    ] * 3
    assert row_of(auditor, user, "a") == before
    assert types_of(auditor, user) == ["device.registered", "device.updated"]


@pytest.mark.parametrize("tag", ['"2"', '"1", "2"', "*"])
def test_a_device_is_revoked_at_an_if_match_that_holds(
    tag: str, service: Service, auditor: Engine, user: int
) -> None:
    (answer,) = one_by_one(
        service, [Call("DELETE", f"/v1/users/{user}/devices/a", headers={"If-Match": tag})]
    )
    assert answer.status_code == 204
    assert devices_of(auditor, user) == []


def test_of_two_changes_at_the_same_etag_at_once_one_is_made_and_one_is_told(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(20)]
    at_once(service, [register(user, "a") for user in users])
    rounds = in_rounds(service, [[change(user, "one", 1), change(user, "two", 1)] for user in users])
    for user, answers in zip(users, rounds, strict=True):
        assert Counter(answer.status_code for answer in answers) == {200: 1, 412: 1}
        (made,) = (answer for answer in answers if answer.status_code == 200)
        row = row_of(auditor, user, "a")
        assert (row.name, row.revision) == (made.json()["name"], 2)
        assert types_of(auditor, user) == ["device.registered", "device.updated"]


def test_of_20_changes_of_different_fields_at_once_none_is_lost(
    service: Service, auditor: Engine, user: int
) -> None:
    path = f"/v1/users/{user}/devices/a"
    answers = at_once(service, [Call("PATCH", path, {"metadata": {f"key-{one}": one}}) for one in range(20)])
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(answer.json()["revision"] for answer in answers) == list(range(3, 23))
    (device,) = one_by_one(service, [Call("GET", path)])
    assert device.json()["metadata"] == {f"key-{one}": one for one in range(20)}
    assert types_of(auditor, user).count("device.updated") == 21


def test_of_two_limits_set_at_the_same_etag_at_once_one_is_set_and_one_is_told(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(20)]
    at_once(service, [put_quota(user, 4, 0) for user in users])
    rounds = in_rounds(service, [[put_quota(user, 5, 1), put_quota(user, 6, 1)] for user in users])
    for user, answers in zip(users, rounds, strict=True):
        assert Counter(answer.status_code for answer in answers) == {200: 1, 412: 1}
        assert types_of(auditor, user) == ["quota.changed"] * 2


def test_of_two_first_limits_at_once_one_is_set_and_one_is_told(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(20)]
    rounds = in_rounds(service, [[put_quota(user, 5, 0), put_quota(user, 6, 0)] for user in users])
    assert [Counter(answer.status_code for answer in answers) for answers in rounds] == [
        {200: 1, 412: 1}
    ] * 20
    assert [types_of(auditor, user) for user in users] == [["quota.changed"]] * 20
