"""Lists in pages: nothing twice, nothing left out, whatever happens between the pages."""

import base64
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.services import running_service
from tests.single_calls import NewUser, register


@pytest.fixture(scope="module")
def roomy(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with room for lists of several pages."""
    folder = tmp_path_factory.mktemp("roomy")
    with (
        running_service(database_url, folder, default_device_limit=200) as service,
        service.client() as client,
    ):
        yield client


def fill(auditor: Engine, user: int, number: int, *, at: str | None = None) -> None:
    """Devices d-000, d-001 …, all of the moment `at` if it is given, so that only the id can order them."""
    insert = text(
        "INSERT INTO devices (user_id, device_id, registered_at, last_seen_at, revision)"
        " SELECT :user, :device, moment, moment, 1"
        " FROM (SELECT COALESCE(:at, UTC_TIMESTAMP(6)) AS moment) AS clock"
    )
    with auditor.connect() as connection:
        for one in range(number):
            connection.execute(insert, {"user": user, "device": f"d-{one:03}", "at": at})


def pages(api: httpx.Client, user: int, limit: int) -> Iterator[list[str]]:
    cursor: str | None = None
    while True:
        query = {"limit": str(limit)} | ({} if cursor is None else {"cursor": cursor})
        page = api.get(f"/v1/users/{user}/devices", params=query).json()
        yield [device["device_id"] for device in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def test_a_list_is_oldest_first_50_at_a_time_with_the_quota(
    roomy: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    fill(auditor, user, 51)
    page = roomy.get(f"/v1/users/{user}/devices").json()
    assert page.keys() == {"items", "next_cursor", "quota"}
    assert len(page["items"]) == 50
    assert page["quota"] == {"limit": 200, "used": 51, "remaining": 149, "source": "default"}
    assert page["items"][0] == roomy.get(f"/v1/users/{user}/devices/d-000").json()
    register(roomy, user, device_id="a-new")
    listed = [device for page in pages(roomy, user, 100) for device in page]
    assert listed == [f"d-{one:03}" for one in range(51)] + ["a-new"]


@pytest.mark.parametrize("limit", [1, 7, 10, 30, 31, 100])
def test_pages_join_into_the_whole_list_even_where_all_were_registered_in_one_moment(
    roomy: httpx.Client, auditor: Engine, new_user: NewUser, limit: int
) -> None:
    user = new_user()
    fill(auditor, user, 30, at="2026-01-02 03:04:05.678901")
    found = list(pages(roomy, user, limit))
    assert [device for page in found for device in page] == [f"d-{one:03}" for one in range(30)]
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert found[-1], "no empty page at the end"


def test_what_is_revoked_or_registered_between_two_pages_moves_nothing_else(
    roomy: httpx.Client, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    fill(auditor, user, 9)
    walk = pages(roomy, user, 3)
    assert next(walk) == ["d-000", "d-001", "d-002"]
    for gone in ("d-001", "d-002", "d-004"):  # d-002 is what the cursor names
        assert roomy.delete(f"/v1/users/{user}/devices/{gone}").status_code == 204
    register(roomy, user, device_id="d-0005")
    register(roomy, user, device_id="d-003", name="refreshed: keeps its place")
    assert next(walk) == ["d-003", "d-005", "d-006"]
    assert next(walk) == ["d-007", "d-008", "d-0005"]
    assert list(walk) == []


def test_a_cursor_that_this_service_has_not_made_is_refused(roomy: httpx.Client, new_user: NewUser) -> None:
    def encoded(content: str) -> str:
        return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")

    path = f"/v1/users/{new_user()}/devices"
    for cursor in (
        "",
        "x",
        "not base64",
        "=",
        "%00",
        "é",
        encoded("devices|yesterday|a"),
        encoded("devices|2026-01-02T03:04:05"),
        encoded("devices|2026-01-02T03:04:05|é"),
        encoded("2026-01-02T03:04:05|a"),
        encoded("events|2026-01-02T03:04:05|1"),
        encoded("||"),
        "a" * 513,
    ):
        answer = roomy.get(path, params={"cursor": cursor})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), cursor
        assert [error["pointer"] for error in answer.json()["errors"]] == ["#/cursor"]
        assert answer.json()["errors"][0]["location"] == "query"


@pytest.mark.parametrize(
    "limit", ["0", "-1", "101", "abc", "", "1.5", "9" * 5000, "\x00", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_a_limit_outside_1_to_100_is_refused(roomy: httpx.Client, new_user: NewUser, limit: str) -> None:
    answer = roomy.get(f"/v1/users/{new_user()}/devices", params={"limit": limit})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["#/limit"]
