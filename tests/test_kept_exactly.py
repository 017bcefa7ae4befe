"""What callers send comes back exactly: ids, text, metadata."""

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.single_calls import NewUser, register, row_of


def test_device_ids_are_compared_byte_for_byte(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    assert register(api, user, device_id="Dev-a").status_code == 201
    assert register(api, user, device_id="dev-A").status_code == 201
    assert api.get(f"/v1/users/{user}/devices/DEV-A").status_code == 404


@pytest.mark.parametrize("user", [1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_user_ids_up_to_2_to_the_64_come_back_as_text(api: httpx.Client, auditor: Engine, user: int) -> None:
    with auditor.connect() as connection:
        connection.execute(text("DELETE FROM devices WHERE user_id = :user"), {"user": user})
    assert register(api, user, device_id="one").json()["device"]["user_id"] == str(user)
    listed = api.get(f"/v1/users/{user}/devices").json()
    assert [device["user_id"] for device in listed["items"]] == [str(user)]
    assert row_of(auditor, user, "one").user_id == user


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), (0, False), ("1", 1), (0, None)])
def test_metadata_that_python_takes_for_equal_is_a_change_all_the_same(
    api: httpx.Client, new_user: NewUser, before: object, after: object
) -> None:
    user = new_user()
    register(api, user, device_id="a", metadata={"x": before})
    changed = register(api, user, device_id="a", metadata={"x": after}).json()["device"]
    assert changed["revision"] == 2
    assert repr(changed["metadata"]["x"]) == repr(after)
    assert repr(api.get(f"/v1/users/{user}/devices/a").json()["metadata"]["x"]) == repr(after)


def test_the_same_metadata_in_another_order_is_no_change(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    register(api, user, device_id="a", metadata={"x": 1, "y": 2})
    assert register(api, user, device_id="a", metadata={"y": 2, "x": 1}).json()["device"]["revision"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "😀",
        "𝌆",
        "携帯",
        "日本語の電話",
        "👨‍👩‍👧‍👦",
        "e\u0301 is not \u00e9",
        "\u202eright to left",
        "zero\u200dwidth",
        "'; DROP TABLE devices; --",
        '%s %(x)s {0} \\ " `',
        "\N{GRINNING FACE}" * 100,
        "x" * 100,
        "",
    ],
)
def test_a_name_comes_back_exactly(api: httpx.Client, new_user: NewUser, name: str) -> None:
    user = new_user()
    sent = register(api, user, device_id="a", name=name, metadata={name[:40] or "k": name})
    assert sent.status_code == 201
    kept = api.get(f"/v1/users/{user}/devices/a").json()
    assert kept["name"] == name
    assert kept["metadata"] == {name[:40] or "k": name}


def test_text_is_trimmed_before_it_is_measured(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    device = register(api, user, name="  " + "x" * 100 + " \u3000", model=" m ").json()["device"]
    assert (device["name"], device["model"]) == ("x" * 100, "m")


def test_metadata_at_each_of_its_bounds_is_kept_exactly(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    numbers = {"max": 2**64, "float": 1.7976931348623157e308, "tiny": 5e-324, "minus": -0.0, "one": 1.0}
    for number, metadata in enumerate(
        (
            {"k" * 40: "v"},
            {f"key-{one}": one for one in range(32)},
            {"a": "é" * ((4096 - len('{"a":""}')) // 2)},
            {"control": "\x00\n\x7f"},
            numbers,
            {},
        )
    ):
        sent = register(api, user, device_id="a", metadata=metadata)
        assert sent.status_code == (200 if number else 201)
        kept = api.get(f"/v1/users/{user}/devices/a").json()["metadata"]
        assert repr(kept) == repr(metadata)
