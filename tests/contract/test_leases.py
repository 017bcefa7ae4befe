"""A device whose lease has run out is gone for whoever looks, whether or not anything has removed it yet."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from app.db import Database
from app.devices.changes import expire_some
from tests.problems import problem_of
from tests.services import running_service
from tests.single_calls import (
    NewUser,
    address,
    end_lease,
    happened,
    listed,
    quota_of,
    register,
    row_of,
    trail,
)
from tests.use_cases import ORIGIN

DEFAULT_LEASE_SECONDS = 7200


@pytest.fixture(scope="module")
def leasing(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that gives each device a lease of two hours."""
    folder = tmp_path_factory.mktemp("leasing")
    with (
        running_service(database_url, folder, default_lease_seconds=DEFAULT_LEASE_SECONDS) as service,
        service.client() as client,
    ):
        yield client


def lease_of(device: Any) -> timedelta | None:
    """From when it was last seen to when it expires."""
    if device["expires_at"] is None:
        return None
    return datetime.fromisoformat(device["expires_at"]) - datetime.fromisoformat(device["last_seen_at"])


@pytest.mark.parametrize("seconds", [60, 3600, 31_536_000])
def test_a_lease_ends_so_long_after_the_device_was_last_seen(
    api: httpx.Client, new_user: NewUser, seconds: int
) -> None:
    user = new_user()
    answer = register(api, user, device_id="a", lease_seconds=seconds)
    device = answer.json()["device"]
    assert lease_of(device) == timedelta(seconds=seconds)
    assert "lease_seconds" not in answer.text
    assert api.get(address(user, "a")).json() == device
    assert api.get(f"/v1/users/{user}/devices").json()["items"] == [device]


def test_without_a_lease_a_device_never_expires(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    assert register(api, user, device_id="a").json()["device"]["expires_at"] is None
    assert register(api, user, device_id="b", lease_seconds=None).json()["device"]["expires_at"] is None
    assert api.post(address(user, "a", "/heartbeat")).json()["expires_at"] is None


def test_the_default_lease_is_of_whoever_names_none(leasing: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    leases = [
        lease_of(register(leasing, user, device_id=device_id, **lease).json()["device"])
        for device_id, lease in (("a", {}), ("b", {"lease_seconds": 60}), ("c", {"lease_seconds": None}))
    ]
    assert leases == [timedelta(seconds=DEFAULT_LEASE_SECONDS), timedelta(seconds=60), None]
    for device_id, lease in zip("abc", leases, strict=True):
        assert lease_of(register(leasing, user, device_id=device_id).json()["device"]) == lease, "kept"
    assert lease_of(leasing.post(address(user, "b", "/heartbeat")).json()) == timedelta(seconds=60)


def test_a_repeat_keeps_the_lease_or_takes_the_one_that_it_names_and_starts_it_anew(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    first = register(api, user, device_id="a", lease_seconds=600).json()["device"]
    kept = register(api, user, device_id="a").json()["device"]
    assert lease_of(kept) == timedelta(seconds=600)
    assert kept["expires_at"] > first["expires_at"]
    longer = register(api, user, device_id="a", lease_seconds=1200)
    assert lease_of(longer.json()["device"]) == timedelta(seconds=1200)
    never = register(api, user, device_id="a", lease_seconds=None).json()["device"]
    assert never["expires_at"] is None
    assert never["revision"] == 1, "a lease describes nothing"
    assert happened(api, user) == [("device.registered", "a")]


def test_a_heartbeat_moves_last_seen_and_the_lease_and_nothing_else(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    before = register(api, user, device_id="a", lease_seconds=600, name="x").json()["device"]
    answer = api.post(address(user, "a", "/heartbeat"))
    assert (answer.status_code, answer.headers["etag"]) == (200, '"1"')
    after = answer.json()
    moved = {name: after[name] for name in ("last_seen_at", "expires_at")}
    assert after == before | moved
    assert after["last_seen_at"] > before["last_seen_at"]
    assert lease_of(after) == timedelta(seconds=600)
    assert api.get(address(user, "a")).json() == after
    assert happened(api, user) == [("device.registered", "a")]
    assert row_of(auditor, user, "a").lease_seconds == 600


def test_a_heartbeat_of_a_device_that_was_never_there_or_was_revoked_is_404(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    problem_of(api.post(address(user, "a", "/heartbeat")), 404, "device_not_found")
    register(api, user, device_id="a")
    api.delete(address(user, "a"))
    problem_of(api.post(address(user, "a", "/heartbeat")), 404, "device_not_found")


def test_what_has_expired_is_gone_for_every_reader_before_anything_has_removed_it(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user, other = new_user(), new_user()
    register(api, user, device_id="a", lease_seconds=60)
    register(api, user, device_id="b", lease_seconds=60)
    end_lease(auditor, user, "a")
    assert listed(api, user) == ["b"]
    assert quota_of(api, user)["used"] == 1
    assert api.get(f"/v1/users/{user}/devices").json()["quota"]["used"] == 1
    for answer in (
        api.get(address(user, "a")),
        api.patch(address(user, "a"), json={"name": "x"}),
        api.delete(address(user, "a")),
        api.delete(address(user, "a"), params={"block": True}),
        api.post(address(user, "a", "/transfer"), json={"to_user_id": str(other)}),
    ):
        problem_of(answer, 404, "device_not_found")
    assert row_of(auditor, user, "a") is not None, "nothing has removed it yet"


def test_a_heartbeat_after_the_lease_is_410_before_and_after_the_sweep(
    api: httpx.Client, auditor: Engine, db: Database, new_user: NewUser
) -> None:
    user = new_user()
    register(api, user, device_id="a", lease_seconds=60)
    end_lease(auditor, user, "a")
    problem_of(api.post(address(user, "a", "/heartbeat")), 410, "device_expired")
    assert row_of(auditor, user, "a") is not None
    assert db.transact(expire_some, ORIGIN, user) == 1
    assert row_of(auditor, user, "a") is None
    problem_of(api.post(address(user, "a", "/heartbeat")), 410, "device_expired")
    assert happened(api, user) == [("device.registered", "a"), ("device.expired", "a")]
    assert trail(api, user)[-1]["actor"] == ORIGIN.actor


def test_who_was_expired_registers_again_as_a_new_device(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    register(api, user, device_id="a", lease_seconds=60, name="old")
    register(api, user, device_id="a", name="older")
    end_lease(auditor, user, "a")
    back = register(api, user, device_id="a")
    assert back.status_code == 201
    assert back.json()["quota"]["used"] == 1
    device = back.json()["device"]
    assert [device[name] for name in ("name", "expires_at", "revision")] == [None, None, 1]
    assert happened(api, user) == [
        ("device.registered", "a"),
        ("device.expired", "a"),
        ("device.registered", "a"),
    ]
    assert api.post(address(user, "a", "/heartbeat")).status_code == 200


def test_at_the_limit_the_slot_of_what_has_expired_is_taken_by_the_next(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id, lease_seconds=60)
    problem_of(register(api, user, device_id="c"), 409, "device_limit_reached")
    end_lease(auditor, user, "a")
    taken = register(api, user, device_id="c")
    assert (taken.status_code, taken.json()["quota"]["used"], taken.json()["evicted"]) == (201, 2, [])
    assert row_of(auditor, user, "a") is None
    assert listed(api, user) == ["b", "c"]
    events = trail(api, user)
    assert [(event["type"], event["device_id"]) for event in events[-2:]] == [
        ("device.expired", "a"),
        ("device.registered", "c"),
    ]
    assert {event["request_id"] for event in events[-2:]} == {taken.headers["x-request-id"]}


def test_more_than_one_batch_of_expired_devices_makes_room_at_once(
    api: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    query = text(
        "INSERT INTO devices"
        " (user_id, device_id, registered_at, last_seen_at, revision, lease_seconds, expires_at)"
        " VALUES (:user, :device, '2026-01-01', '2026-01-01', 1, 60, '2026-01-02')"
    )
    with auditor.connect() as connection:
        connection.execute(query, [{"user": user, "device": f"d-{one}"} for one in range(1100)])
    answer = register(api, user, device_id="new")
    assert (answer.status_code, answer.json()["quota"]["used"]) == (201, 1)
    assert listed(api, user) == ["new"]
