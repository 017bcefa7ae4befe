"""What callers may rely on when nothing goes wrong: statuses, bodies, headers."""

import re
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.services import Service
from tests.single_calls import NewUser, register, row_of

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
EVERYTHING = {
    "device_id": "Dev.1_~:-",
    "name": "Ana's phone",
    "platform": "android",
    "model": "Pixel 12",
    "os_version": "17",
    "app_version": "4.2.0",
    "metadata": {"n": 1, "f": 1.5, "t": True, "s": "text", "nothing": None},
}


def test_a_new_device_is_answered_201_with_its_address_and_its_etag(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    answer = register(api, user, **EVERYTHING)
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["location"] == f"/v1/users/{user}/devices/Dev.1_~:-"
    assert answer.headers["etag"] == '"1"'
    body = answer.json()
    assert body.keys() == {"device", "quota", "evicted"}
    assert body["evicted"] == []
    assert body["quota"] == {"limit": 2, "used": 1, "remaining": 1, "source": "default"}
    device = body["device"]
    moment = device["registered_at"]
    assert device == EVERYTHING | {
        "user_id": str(user),
        "registered_at": moment,
        "last_seen_at": moment,
        "expires_at": None,
        "revision": 1,
    }
    assert TIME.fullmatch(moment)
    assert abs(datetime.fromisoformat(moment) - datetime.now(UTC)) < timedelta(seconds=30)
    assert api.get(answer.headers["location"]).json() == device
    assert row_of(auditor, user, "Dev.1_~:-").name == "Ana's phone"


def test_fields_that_are_left_out_are_null(api: httpx.Client, new_user: NewUser) -> None:
    device = register(api, new_user(), device_id="bare").json()["device"]
    absent = ("name", "platform", "model", "os_version", "app_version", "metadata")
    assert [device[name] for name in absent] == [None] * len(absent)


def test_the_server_makes_a_uuid_of_version_7_where_no_device_id_is_sent(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    first, second = register(api, user), register(api, user, device_id=None)
    assert (first.status_code, second.status_code) == (201, 201)
    ids = [answer.json()["device"]["device_id"] for answer in (first, second)]
    assert [uuid.UUID(one).version for one in ids] == [7, 7]
    assert ids == sorted(set(ids))


def test_a_repeat_refreshes_what_is_given_and_counts_a_revision_only_for_a_change(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    first = register(api, user, **EVERYTHING).json()["device"]

    same = register(api, user, **EVERYTHING)
    assert same.status_code == 200
    assert "location" not in same.headers
    assert same.headers["etag"] == '"1"'
    assert same.json()["quota"]["used"] == 1
    assert same.json()["device"] == first | {"last_seen_at": same.json()["device"]["last_seen_at"]}
    assert same.json()["device"]["last_seen_at"] > first["last_seen_at"]

    changed = register(api, user, device_id=first["device_id"], name="New", model=None)
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    device = changed.json()["device"]
    assert device == first | {
        "name": "New",
        "model": None,
        "revision": 2,
        "last_seen_at": device["last_seen_at"],
    }
    stored = api.get(f"/v1/users/{user}/devices/{first['device_id']}")
    assert stored.json() == device
    assert stored.headers["etag"] == '"2"'


def test_at_the_limit_a_new_device_is_refused_and_a_known_one_is_not(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    for device_id in ("a", "b"):
        assert register(api, user, device_id=device_id).status_code == 201
    refused = register(api, user, device_id="c")
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert "retry-after" not in refused.headers
    assert refused.json() == {
        "type": "/problems/device_limit_reached",
        "title": "Device limit reached",
        "status": 409,
        "code": "device_limit_reached",
        "detail": f"User {user} has 2 of 2 devices.",
        "instance": f"/v1/users/{user}/devices",
        "request_id": refused.headers["x-request-id"],
        "limit": 2,
        "used": 2,
        "need_to_remove": 1,
        "devices": f"/v1/users/{user}/devices",
    }
    assert row_of(auditor, user, "c") is None
    again = register(api, user, device_id="a")
    assert (again.status_code, again.json()["quota"]["remaining"]) == (200, 0)


def test_a_revoked_device_is_gone_and_its_slot_is_free_at_once(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id)
    revoked = api.delete(f"/v1/users/{user}/devices/a")
    assert (revoked.status_code, revoked.content) == (204, b"")
    assert "content-type" not in revoked.headers
    assert row_of(auditor, user, "a") is None
    assert api.get(f"/v1/users/{user}/devices/a").status_code == 404
    assert api.delete(f"/v1/users/{user}/devices/a").json()["code"] == "device_not_found"
    assert register(api, user, device_id="c").status_code == 201


def test_a_device_that_comes_back_starts_anew(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    first = register(api, user, device_id="a", name="Old").json()["device"]
    register(api, user, device_id="a", name="Older")
    api.delete(f"/v1/users/{user}/devices/a")
    back = register(api, user, device_id="a")
    assert (back.status_code, back.json()["device"]["revision"]) == (201, 1)
    assert back.json()["device"]["name"] is None
    assert back.json()["device"]["registered_at"] > first["registered_at"]


@pytest.mark.parametrize(
    ("if_match", "status"),
    [
        ('"2"', 204),
        ("*", 204),
        ('"1", "2"', 204),
        ('"1" ,"x,y" , "2"', 204),
        ('"1"', 412),
        ('W/"2"', 412),
        ('W/"1", "3"', 412),
        ('""', 412),
        ('"02"', 412),
    ],
)
def test_if_match_lets_a_delete_through_only_at_the_current_revision(
    api: httpx.Client, auditor: Engine, new_user: NewUser, if_match: str, status: int
) -> None:
    user = new_user()
    register(api, user, device_id="a")
    register(api, user, device_id="a", name="second")
    answer = api.delete(f"/v1/users/{user}/devices/a", headers={"If-Match": if_match})
    assert answer.status_code == status
    assert (row_of(auditor, user, "a") is None) == (status == 204)
    if status == 412:
        assert answer.json()["code"] == "precondition_failed"


@pytest.mark.parametrize("if_match", ['"1"', "*", 'W/"1"'])
def test_if_match_on_a_device_that_is_not_there_is_404(
    api: httpx.Client, new_user: NewUser, if_match: str
) -> None:
    answer = api.delete(f"/v1/users/{new_user()}/devices/a", headers={"If-Match": if_match})
    assert (answer.status_code, answer.json()["code"]) == (404, "device_not_found")


def test_a_user_that_was_never_seen_has_an_empty_list_and_all_of_the_quota(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    quota = {"limit": 2, "used": 0, "remaining": 2, "source": "default"}
    assert api.get(f"/v1/users/{user}/quota").json() == quota
    listed = api.get(f"/v1/users/{user}/devices")
    assert (listed.status_code, listed.json()) == (200, {"items": [], "next_cursor": None, "quota": quota})
    with auditor.connect() as connection:
        locks = connection.execute(
            text("SELECT COUNT(*) FROM device_registration_locks WHERE user_id = :user"), {"user": user}
        )
        assert locks.scalar_one() == 0, "reading leaves nothing behind"


def test_devices_of_another_user_are_not_to_be_seen(api: httpx.Client, new_user: NewUser) -> None:
    mine, other = new_user(), new_user()
    register(api, mine, device_id="a")
    assert api.get(f"/v1/users/{other}/devices/a").status_code == 404
    assert api.delete(f"/v1/users/{other}/devices/a").status_code == 404
    assert api.get(f"/v1/users/{other}/devices").json()["items"] == []
    assert api.get(f"/v1/users/{mine}/quota").json()["used"] == 1


def test_a_sane_request_id_comes_back_and_any_other_is_replaced(api: httpx.Client, new_user: NewUser) -> None:
    path = f"/v1/users/{new_user()}/devices/none"
    for sane in ("a", "x" * 128, "Root=1-67891233-abcdef012345678912345678", "a.b_c:d+e/f=g@h-i"):
        answer = api.get(path, headers={"X-Request-ID": sane})
        assert answer.headers.get_list("x-request-id") == [sane]
        assert answer.json()["request_id"] == sane
    made = set()
    for other in (None, "", "two words", "x" * 129, "a\tb", 'quo"te'):
        answer = api.get(path, headers={} if other is None else {"X-Request-ID": other})
        made.add(answer.headers["x-request-id"])
        assert answer.json()["request_id"] == answer.headers["x-request-id"] != other
    assert len(made) == 6


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/docs", "/openapi.json", "/docs/assets/swagger-ui.css", "/none"]
)
def test_every_answer_has_a_request_id(service: Service, path: str) -> None:
    assert httpx.get(service.url + path).headers["x-request-id"]


def test_head_answers_as_get_without_the_body(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    register(api, user, device_id="a")
    for path in (
        "/livez",
        "/docs",
        "/openapi.json",
        f"/v1/users/{user}/devices/a",
        f"/v1/users/{user}/quota",
    ):
        got, head = api.get(path), api.head(path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-type", "content-length", "etag"):
            assert head.headers.get(name) == got.headers.get(name)
    assert api.head(f"/v1/users/{user}/devices/none").status_code == 404


def test_what_a_problem_means_is_told_at_its_type(api: httpx.Client, new_user: NewUser) -> None:
    problem = api.get(f"/v1/users/{new_user()}/devices/none").json()
    told = api.get(problem["type"]).json()
    assert (told["code"], told["title"], told["status"]) == ("device_not_found", "Device not found", 404)
