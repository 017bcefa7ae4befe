"""PATCH is a JSON merge patch (RFC 7396), bounded by what the device would then be."""

from typing import Any

import httpx
import pytest

from tests.problems import mistakes, problem_of
from tests.single_calls import NewUser, address, happened, register, trail

EVERYTHING = {
    "name": "Ana's phone",
    "platform": "android",
    "model": "Pixel 12",
    "os_version": "17",
    "app_version": "4.2.0",
    "metadata": {"a": 1, "b": None, "c": "x"},
}


def patch(api: httpx.Client, user: int, change: Any, **headers: str) -> httpx.Response:
    return api.patch(address(user, "a"), json=change, headers=headers)


def test_what_is_given_changes_and_the_rest_stays(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    before = register(api, user, device_id="a", **EVERYTHING).json()["device"]
    answer = patch(api, user, {"name": "New", "model": None})
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    assert answer.json() == before | {"name": "New", "model": None, "revision": 2}
    read = api.get(address(user, "a"))
    assert (read.json(), read.headers["etag"]) == (answer.json(), '"2"')
    changed = trail(api, user)[-1]
    assert (changed["type"], changed["data"]) == ("device.updated", {"name": "New", "model": None})


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({"a": 1, "b": None, "c": "x"}, {"c": "y"}, {"a": 1, "b": None, "c": "y"}),
        ({"a": 1, "b": None}, {"a": None}, {"b": None}),
        ({"a": 1, "b": None}, {"b": None}, {"a": 1}),
        ({"a": 1}, {"none": None}, {"a": 1}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": 1}, None, None),
        (None, {"a": None}, {}),
        (None, {"a": 1, "b": None}, {"a": 1}),
        (None, None, None),
        ({"a": 1}, {"a": None}, {}),
    ],
)
def test_metadata_merges_key_by_key(
    api: httpx.Client, new_user: NewUser, before: Any, change: Any, after: Any
) -> None:
    user = new_user()
    register(api, user, device_id="a", metadata=before)
    answer = patch(api, user, {"metadata": change})
    assert answer.status_code == 200
    assert repr(answer.json()["metadata"]) == repr(after)
    assert repr(api.get(address(user, "a")).json()["metadata"]) == repr(after)
    assert answer.json()["revision"] == (1 if repr(before) == repr(after) else 2)


def test_a_patch_that_changes_nothing_counts_no_revision_and_is_no_event(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    before = register(api, user, device_id="a", **EVERYTHING).json()["device"]
    for change in ({}, {"name": " Ana's phone "}, {"metadata": {"a": 1}}, {"metadata": {"none": None}}):
        answer = patch(api, user, change)
        assert (answer.status_code, answer.headers["etag"], answer.json()) == (200, '"1"', before)
    assert happened(api, user) == [("device.registered", "a")]


@pytest.mark.parametrize(
    "media_type", ["application/merge-patch+json", "application/json", "Application/Merge-Patch+JSON; x=y"]
)
def test_a_merge_patch_may_name_its_own_media_type(
    api: httpx.Client, new_user: NewUser, media_type: str
) -> None:
    user = new_user()
    register(api, user, device_id="a", **EVERYTHING)
    answer = api.patch(address(user, "a"), content=b'{"name": "N"}', headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["name"]) == (200, "N")


def test_the_bounds_are_those_of_the_merged_metadata(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    full = {f"k{one}": one for one in range(32)}
    register(api, user, device_id="a", metadata=full)
    refused = patch(api, user, {"metadata": {"one-more": 1}})
    assert mistakes(refused) == [("body", "#/metadata")]
    assert "33" in refused.json()["errors"][0]["detail"]
    others = {f"n{one}": one for one in range(32)}
    exchanged = patch(api, user, {"metadata": others | dict.fromkeys(full)})
    assert (exchanged.status_code, exchanged.json()["metadata"]) == (200, others)

    register(api, user, device_id="a", metadata={"a": "x" * 4000})
    too_large = patch(api, user, {"metadata": {"b": "y" * 100}})
    assert mistakes(too_large) == [("body", "#/metadata")]
    assert patch(api, user, {"metadata": {"a": None, "b": "y" * 4000}}).status_code == 200
    assert mistakes(patch(api, user, {"metadata": {"b": None, "c": "z" * 5000}})) == [("body", "#/metadata")]
    assert api.get(address(user, "a")).json()["metadata"] == {"b": "y" * 4000}


@pytest.mark.parametrize(
    "name",
    [
        "𝌆",
        "携帯",
        "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}\u200d\N{BOY}",
        "𝌆" * 100,
        "x" * 100,
        "e\u0301 is not \u00e9",
        "",
    ],
)
def test_a_name_is_kept_exactly_by_a_patch(api: httpx.Client, new_user: NewUser, name: str) -> None:
    user = new_user()
    register(api, user, device_id="a", name="before")
    assert patch(api, user, {"name": name}).json()["name"] == name
    assert api.get(address(user, "a")).json()["name"] == name
    assert trail(api, user)[-1]["data"] == {"name": name}


@pytest.mark.parametrize(
    ("if_match", "status"),
    [
        ('"2"', 200),
        ("*", 200),
        ('"1", "2"', 200),
        ('"1"', 412),
        ('W/"2"', 412),
        ('"3", W/"2"', 412),
        ('"02"', 412),
    ],
)
def test_if_match_lets_a_patch_through_only_at_the_current_revision(
    api: httpx.Client, new_user: NewUser, if_match: str, status: int
) -> None:
    user = new_user()
    register(api, user, device_id="a", name="first")
    register(api, user, device_id="a", name="second")
    answer = patch(api, user, {"name": "third"}, **{"If-Match": if_match})
    assert answer.status_code == status
    if status == 412:
        problem_of(answer, 412, "precondition_failed")
    assert api.get(address(user, "a")).json()["name"] == ("third" if status == 200 else "second")


def test_a_patch_of_a_device_that_is_not_there_is_404(api: httpx.Client, new_user: NewUser) -> None:
    user, other = new_user(), new_user()
    register(api, other, device_id="a")
    for if_match in ({}, {"If-Match": '"1"'}, {"If-Match": "*"}):
        problem_of(patch(api, user, {"name": "x"}, **if_match), 404, "device_not_found")
    assert api.get(address(other, "a")).json()["name"] is None


def test_a_patch_leaves_when_the_device_was_seen_and_its_lease(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    before = register(api, user, device_id="a", lease_seconds=60).json()["device"]
    after = patch(api, user, {"name": "x"}).json()
    assert [after[name] for name in ("last_seen_at", "expires_at")] == [
        before[name] for name in ("last_seen_at", "expires_at")
    ]
