"""The trail: what happened, who asked for it and why, newest first; and revoking all, its longest entry."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.problems import mistakes, problem_of
from tests.single_calls import (
    NewUser,
    address,
    end_lease,
    happened,
    listed,
    register,
    set_limit,
    trail,
)


def events(api: httpx.Client, user: int, **query: object) -> httpx.Response:
    return api.get(f"/v1/users/{user}/events", params={name: str(value) for name, value in query.items()})


def test_an_event_says_what_who_why_when_and_by_which_call(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    register(api, user, device_id="a", name="携帯", metadata={"n": 1.0})
    reason = "lost 👪, says the owner"
    api.delete(address(user, "a"), params={"reason": reason}, headers={"X-Request-ID": "support/case-17"})
    page = events(api, user)
    assert page.status_code == 200
    assert page.json().keys() == {"items", "next_cursor"}
    assert page.json()["next_cursor"] is None
    revoked, registered = page.json()["items"]
    assert revoked == {
        "id": revoked["id"],
        "type": "device.revoked",
        "device_id": "a",
        "actor": "root_key",
        "reason": reason,
        "request_id": "support/case-17",
        "occurred_at": revoked["occurred_at"],
        "data": {},
    }
    assert registered["data"] == {"name": "携帯", "metadata": {"n": 1.0}}
    assert registered["reason"] is None
    assert int(revoked["id"]) > int(registered["id"])
    assert revoked["occurred_at"] > registered["occurred_at"]
    assert abs(datetime.fromisoformat(revoked["occurred_at"]) - datetime.now(UTC)) < timedelta(seconds=30)


@pytest.mark.parametrize("reason", ["x" * 500, "𝌆" * 500, " trimmed "])
def test_a_reason_is_kept_up_to_500_code_points(api: httpx.Client, new_user: NewUser, reason: str) -> None:
    user = new_user()
    register(api, user, device_id="a")
    assert api.delete(address(user, "a"), params={"reason": reason}).status_code == 204
    assert trail(api, user)[-1]["reason"] == reason.strip()


def test_the_trail_of_a_user_that_was_never_seen_is_empty(api: httpx.Client, new_user: NewUser) -> None:
    assert events(api, new_user()).json() == {"items": [], "next_cursor": None}


def test_what_was_refused_or_changed_nothing_is_no_event(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id)
    before = trail(api, user)
    for _ in range(2):
        register(api, user, device_id="a", name="a repeat is none, even one that changes a name")
        api.post(address(user, "a", "/heartbeat"))
        register(api, user, device_id="c")
        register(api, user, device_id="c", replace_device_id="none")
        api.patch(address(user, "a"), json={"name": "x"}, headers={"If-Match": '"9"'})
        api.delete(address(user, "a"), headers={"If-Match": '"9"'})
        api.post(address(user, "a", "/allow"))
        api.post(address(user, "a", "/transfer"), json={"to_user_id": str(user)})
        api.get(address(user, "a"))
    end_lease(auditor, user, "b")
    listed(api, user)
    assert trail(api, user) == before


def test_a_page_is_stable_while_new_events_arrive(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    for one in range(5):
        register(api, user, device_id=f"d-{one}")
        api.delete(address(user, f"d-{one}"))
    whole = [event["id"] for event in events(api, user).json()["items"]]
    assert len(whole) == 10
    found: list[str] = []
    cursor = None
    for number in range(4):
        page = events(api, user, limit=3, **({} if cursor is None else {"cursor": cursor})).json()
        found += [event["id"] for event in page["items"]]
        cursor = page["next_cursor"]
        register(api, user, device_id=f"new-{number}")
        api.delete(address(user, f"new-{number}"))
    assert found == whole
    assert cursor is None


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_pages_join_into_the_whole_trail_even_where_all_happened_in_one_moment(
    api: httpx.Client, auditor: Engine, new_user: NewUser, limit: int
) -> None:
    user = new_user()
    row = text(
        "INSERT INTO events (user_id, occurred_at, type, actor, request_id, data)"
        " VALUES (:user, '2026-01-02 03:04:05.678901', 'quota.changed', 'tests', 'r', '{}')"
    )
    with auditor.connect() as connection:
        for _ in range(14):
            connection.execute(row, {"user": user})
    found: list[int] = []
    query: dict[str, object] = {"limit": limit}
    while True:
        page = events(api, user, **query).json()
        assert page["items"], "no empty page at the end"
        found += [int(event["id"]) for event in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 14


def test_a_cursor_is_good_for_its_own_list_alone(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    for number in (1, 2):  # a number is an id in each of the lists
        register(api, user, device_id=str(number))
        api.post("/v1/api-keys", json={"name": "paged", "scopes": ["devices:read"]})
        endpoint = api.post("/v1/webhook-endpoints", json={"url": "https://hooks.example.com/"}).json()
        api.post(f"/v1/webhook-endpoints/{endpoint['id']}/test")
    lists = [
        *(f"/v1/users/{user}/devices", f"/v1/users/{user}/events"),
        *("/v1/api-keys", "/v1/webhook-endpoints", "/v1/webhook-deliveries"),
    ]
    cursors = {path: api.get(path, params={"limit": 1}).json()["next_cursor"] for path in lists}
    for path in lists:
        for source, cursor in cursors.items():
            answer = api.get(path, params={"cursor": cursor})
            if source == path:
                assert answer.status_code == 200
            else:
                assert mistakes(answer) == [("query", "#/cursor")], f"{source} at {path}"
                assert answer.json()["errors"][0]["detail"] == "is not a cursor of this list"
    for endpoint in api.get("/v1/webhook-endpoints").json()["items"]:
        api.delete(f"/v1/webhook-endpoints/{endpoint['id']}")


def test_registering_and_revoking_one_device_50_times_leaves_100_events(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    for _ in range(50):
        assert register(api, user, device_id="a").status_code == 201
        assert api.delete(address(user, "a")).status_code == 204
    assert happened(api, user) == [("device.registered", "a"), ("device.revoked", "a")] * 50


def test_revoke_all_says_how_many_and_each_is_in_the_trail(api: httpx.Client, new_user: NewUser) -> None:
    user, other = new_user(), new_user()
    register(api, other, device_id="a")
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id)
    answer = api.delete(f"/v1/users/{user}/devices", params={"reason": "account closed"})
    assert (answer.status_code, answer.json()) == (200, {"revoked": 2})
    assert listed(api, user) == []
    assert listed(api, other) == ["a"]
    gone = trail(api, user)[2:]
    assert sorted((event["type"], event["device_id"]) for event in gone) == [
        ("device.revoked", "a"),
        ("device.revoked", "b"),
    ]
    assert {(event["reason"], event["request_id"]) for event in gone} == {
        ("account closed", answer.headers["x-request-id"])
    }
    assert api.delete(f"/v1/users/{user}/devices").json() == {"revoked": 0}
    assert register(api, user, device_id="c").status_code == 201


def test_revoke_all_counts_none_whose_lease_has_run_out(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id, lease_seconds=60)
    end_lease(auditor, user, "a")
    assert api.delete(f"/v1/users/{user}/devices").json() == {"revoked": 1}
    problem_of(api.post(address(user, "a", "/heartbeat")), 410, "device_expired")
    problem_of(api.post(address(user, "b", "/heartbeat")), 404, "device_not_found")


def test_revoke_all_takes_any_number_of_devices(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    set_limit(api, user, 1500)
    row = text(
        "INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision)"
        " VALUES (:user, :device, '2026-01-02', '2026-01-02', 1)"
    )
    with auditor.connect() as connection:
        connection.execute(row, [{"user": user, "device": f"d-{one}"} for one in range(1001)])
    assert api.delete(f"/v1/users/{user}/devices").json() == {"revoked": 1001}
    with auditor.connect() as connection:
        count = text("SELECT COUNT(*) FROM events WHERE user_id = :user AND type = 'device.revoked'")
        assert connection.execute(count, {"user": user}).scalar_one() == 1001
