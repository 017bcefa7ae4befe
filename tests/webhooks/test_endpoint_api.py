"""Webhook endpoints over HTTP."""

import base64
import datetime
import json
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from app.webhooks.service import MOST_ENDPOINTS
from tests.callers import Call, at_once, statuses
from tests.problems import mistakes, problem_of
from tests.services import Service
from tests.webhooks.managed import (
    DELIVERIES,
    HOME,
    URL,
    at,
    make,
    without_secret,
)

pytestmark = pytest.mark.usefixtures("none_left")


def test_an_endpoint_is_made_with_a_secret_that_no_other_call_shows(api: httpx.Client) -> None:
    answer = api.post(HOME, json={"url": "HTTPS://Hooks.Example.COM", "description": " Ends sessions ☎ "})
    made = answer.json()
    assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
    assert answer.headers["location"] == at(made)
    assert made | {"id": "", "secret": "", "created_at": ""} == {
        "id": "",
        "url": "https://hooks.example.com/",
        "event_types": None,
        "description": "Ends sessions ☎",
        "enabled": True,
        "disabled_because": None,
        "previous_secret_until": None,
        "created_at": "",
        "revision": 1,
        "secret": "",
    }
    assert len(base64.b64decode(made["secret"].removeprefix("whsec_"), validate=True)) == 32
    shown = [
        api.get(at(made)),
        api.get(HOME),
        api.patch(at(made), json={"description": None}),
        api.post(at(made, "/test")),
    ]
    for other in shown:
        assert made["secret"].removeprefix("whsec_") not in other.text
        assert "whsec_" not in other.text
    assert shown[0].json() == without_secret(made)


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["#/url"]),
        ({"url": None}, ["#/url"]),
        ({"url": 1}, ["#/url"]),
        ({"url": ""}, ["#/url"]),
        ({"url": "http://hooks.example.com/"}, ["#/url"]),
        ({"url": "https://127.0.0.1/"}, ["#/url"]),
        ({"url": "https://localhost/"}, ["#/url"]),
        ({"url": "https://2130706433/"}, ["#/url"]),
        ({"url": "https://[::ffff:127.0.0.1]/"}, ["#/url"]),
        ({"url": "https://a:b@hooks.example.com/"}, ["#/url"]),
        ({"url": "https://hooks.example.com/#a"}, ["#/url"]),
        ({"url": "https://hooks.example.com/" + "a" * 2048}, ["#/url"]),
        ({"url": "https://hooks.example.com/\ud800"}, ["#/url"]),
        ({"url": URL, "event_types": []}, ["#/event_types"]),
        ({"url": URL, "event_types": ["device.stolen"]}, ["#/event_types/0"]),
        ({"url": URL, "event_types": ["webhook.test"]}, ["#/event_types/0"]),
        ({"url": URL, "event_types": ["quota.changed", "quota.changed"]}, ["#/event_types"]),
        ({"url": URL, "event_types": "device.revoked"}, ["#/event_types"]),
        ({"url": URL, "description": "x" * 201}, ["#/description"]),
        ({"url": URL, "description": "a\x00"}, ["#/description"]),
        ({"url": URL, "secret": "whsec_mine"}, ["#/secret"]),
        ({"url": URL, "enabled": False}, ["#/enabled"]),
        ({"url": URL, "evnt_types": None}, ["#/evnt_types"]),
    ],
)
def test_what_cannot_be_an_endpoint_is_named(api: httpx.Client, body: Any, pointers: list[str]) -> None:
    content = json.dumps(body).encode()
    answer = api.post(HOME, content=content, headers={"Content-Type": "application/json"})
    assert mistakes(answer) == [("body", pointer) for pointer in pointers]
    assert api.get(HOME).json()["items"] == []


@pytest.mark.parametrize("description", ["携帯 📱", "x" * 200, "𝌆" * 200, "", None])
def test_a_description_and_a_filter_are_kept_exactly(api: httpx.Client, description: str | None) -> None:
    types = ["quota.changed", "device.revoked"]
    made = make(api, description=description, event_types=types)
    read = api.get(at(made)).json()
    assert (read["description"], read["event_types"]) == (description, types)


def test_a_patch_changes_what_it_names_and_nothing_else(api: httpx.Client) -> None:
    made = make(api, description="before", event_types=["device.revoked"])
    answer = api.patch(at(made), json={"url": "https://other.example.com:443"})
    assert answer.json() == without_secret(made) | {"url": "https://other.example.com/", "revision": 2}
    assert answer.headers["etag"] == '"2"'
    cleared = api.patch(at(made), json={"event_types": None, "description": None}).json()
    assert (cleared["event_types"], cleared["description"], cleared["revision"]) == (None, None, 3)
    for nothing in ({}, {"event_types": None}, {"url": "https://OTHER.example.com"}, {"enabled": True}):
        assert api.patch(at(made), json=nothing).json() == cleared
    for wrong in (
        {"url": None},
        {"enabled": None},
        {"enabled": "no"},
        {"enabled": 0},
        {"url": "https://10.0.0.1/"},
    ):
        (name,) = wrong
        assert mistakes(api.patch(at(made), json=wrong)) == [("body", f"#/{name}")]
    assert api.get(at(made)).json() == cleared


def test_an_endpoint_is_disabled_and_enabled(api: httpx.Client) -> None:
    made = make(api)
    disabled = api.patch(at(made), json={"enabled": False}).json()
    assert (disabled["enabled"], disabled["disabled_because"], disabled["revision"]) == (False, "asked", 2)
    enabled = api.patch(at(made), json={"enabled": True}).json()
    assert enabled == without_secret(made) | {"revision": 3}


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_if_match_lets_only_the_current_revision_through(api: httpx.Client, method: str) -> None:
    made = make(api)
    api.patch(at(made), json={"description": "second"})
    body = {"description": "third"} if method == "PATCH" else None
    for stale in ('"1"', 'W/"2"', '"3"'):
        stopped = api.request(method, at(made), json=body, headers={"If-Match": stale})
        problem_of(stopped, 412, "precondition_failed")
    assert api.get(at(made)).json()["description"] == "second"
    assert api.request(method, at(made), json=body, headers={"If-Match": '"2"'}).is_success


def test_endpoints_are_listed_oldest_first_in_pages(api: httpx.Client) -> None:
    made = [make(api, description=str(number)) for number in range(5)]
    api.delete(at(made.pop(2)))
    first = api.get(HOME, params={"limit": 3}).json()
    rest = api.get(HOME, params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert first["items"] + rest["items"] == [without_secret(one) for one in made]
    assert rest["next_cursor"] is None
    for cursor in ("", "x", "bm90fGF8Y3Vyc29y"):
        assert mistakes(api.get(HOME, params={"cursor": cursor})) == [("query", "#/cursor")]


def test_a_deleted_endpoint_is_gone_with_its_secrets(api: httpx.Client, auditor: Engine) -> None:
    made = make(api)
    api.post(at(made, "/rotate-secret"))
    assert api.delete(at(made)).status_code == 204
    for call in (
        api.get(at(made)),
        api.patch(at(made), json={"enabled": True}),
        api.delete(at(made)),
        api.post(at(made, "/rotate-secret")),
        api.post(at(made, "/test")),
    ):
        problem_of(call, 404, "webhook_endpoint_not_found")
    with auditor.connect() as connection:
        kept = connection.execute(text("SELECT secret, previous_secret FROM webhook_endpoints")).all()
    assert set(kept) <= {(b"", None)}


@pytest.mark.parametrize("number", ["0", "01", "-1", "a", "1.0", "9" * 19, "%00"])
@pytest.mark.parametrize("home", [HOME, DELIVERIES])
def test_an_id_that_is_none_is_422(api: httpx.Client, home: str, number: str) -> None:
    name, kind = ("endpoint_id", "an endpoint") if home == HOME else ("delivery_id", "a delivery")
    (mistake,) = problem_of(api.get(f"{home}/{number}"), 422, "invalid_request")["errors"]
    assert (mistake["location"], mistake["pointer"]) == ("path", f"#/{name}")
    assert mistake["detail"] == f"must be the id of {kind}: 1 to 18 digits 0-9, the first not 0"


def test_an_id_that_nothing_has_is_404(api: httpx.Client) -> None:
    for number in ("999999", "9" * 18):
        problem_of(api.get(f"{HOME}/{number}"), 404, "webhook_endpoint_not_found")
        for call in ("", "/retry", "/discard"):
            method = "POST" if call else "GET"
            answer = api.request(method, f"{DELIVERIES}/{number}{call}")
            problem_of(answer, 404, "webhook_delivery_not_found")


@pytest.mark.locking
def test_of_many_calls_at_once_for_the_last_endpoint_one_gets_it(service: Service, api: httpx.Client) -> None:
    for _ in range(MOST_ENDPOINTS - 1):
        make(api)
    answers = at_once(service, [Call("POST", HOME, {"url": URL}) for _ in range(12)])
    assert statuses(answers) == {201: 1, 409: 11}
    for refused in (answer for answer in answers if answer.status_code == 409):
        assert problem_of(refused, 409, "webhook_endpoint_limit_reached")["limit"] == MOST_ENDPOINTS
    (last,) = (answer.json() for answer in answers if answer.status_code == 201)
    assert api.delete(at(last)).status_code == 204
    make(api)


# Rotation.


def secrets_in_database(auditor: Engine, endpoint: Any) -> tuple[bytes, bytes | None, float | None]:
    query = text(
        "SELECT secret, previous_secret, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), previous_secret_until)"
        " FROM webhook_endpoints WHERE id = :id"
    )
    with auditor.connect() as connection:
        secret, previous, left = connection.execute(query, {"id": endpoint["id"]}).one()
    return secret, previous, None if left is None else left / 1e6


def key_of(endpoint: Any) -> bytes:
    return base64.b64decode(endpoint["secret"].removeprefix("whsec_"))


@pytest.mark.parametrize(
    ("query", "seconds"), [("", 86_400), ("?grace_seconds=60", 60), ("?grace_seconds=604800", 604_800)]
)
def test_after_a_rotation_both_secrets_are_good_for_the_time_of_grace(
    api: httpx.Client, auditor: Engine, query: str, seconds: int
) -> None:
    made = make(api)
    rotated = api.post(at(made, f"/rotate-secret{query}"))
    assert (rotated.status_code, rotated.headers["etag"]) == (200, '"2"')
    secret, previous, left = secrets_in_database(auditor, made)
    assert (secret, previous) == (key_of(rotated.json()), key_of(made))
    assert left == pytest.approx(seconds, abs=30)
    read = api.get(at(made)).json()
    assert read == without_secret(rotated.json())
    until = datetime.datetime.fromisoformat(read["previous_secret_until"])
    assert (until - datetime.datetime.now(datetime.UTC)).total_seconds() == pytest.approx(seconds, abs=60)


def test_without_grace_the_old_secret_is_lost_at_once(api: httpx.Client, auditor: Engine) -> None:
    made = make(api)
    rotated = api.post(at(made, "/rotate-secret?grace_seconds=0")).json()
    assert secrets_in_database(auditor, made) == (key_of(rotated), None, None)
    assert rotated["previous_secret_until"] is None


def test_a_second_rotation_loses_the_first_of_three_secrets(api: httpx.Client, auditor: Engine) -> None:
    made = make(api)
    second, third = (api.post(at(made, "/rotate-secret")).json() for _ in range(2))
    assert secrets_in_database(auditor, made)[:2] == (key_of(third), key_of(second))


def test_a_rotation_repeated_at_its_if_match_leaves_the_secret_that_the_receiver_has(
    api: httpx.Client, auditor: Engine
) -> None:
    made = make(api)
    rotated = api.post(at(made, "/rotate-secret"), headers={"If-Match": '"1"'})
    assert (rotated.status_code, rotated.headers["etag"]) == (200, '"2"')
    for stale in ('"1"', 'W/"2"', '"3"'):
        again = api.post(at(made, "/rotate-secret?grace_seconds=0"), headers={"If-Match": stale})
        problem_of(again, 412, "precondition_failed")
    assert secrets_in_database(auditor, made)[:2] == (key_of(rotated.json()), key_of(made))
    assert api.post(at(made, "/rotate-secret"), headers={"If-Match": "*"}).status_code == 200


@pytest.mark.parametrize("grace", ["-1", "604801", "1.5", "a", ""])
def test_a_grace_out_of_bounds_is_refused_and_rotates_nothing(
    api: httpx.Client, auditor: Engine, grace: str
) -> None:
    made = make(api)
    answer = api.post(at(made, "/rotate-secret"), params={"grace_seconds": grace})
    assert mistakes(answer) == [("query", "#/grace_seconds")]
    assert secrets_in_database(auditor, made) == (key_of(made), None, None)


# Deliveries.


def test_a_test_event_is_a_delivery_to_this_endpoint_alone_whatever_its_filter(
    api: httpx.Client,
) -> None:
    endpoint, _other = make(api, event_types=["quota.changed"]), make(api)
    answer = api.post(at(endpoint, "/test"))
    delivery = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{DELIVERIES}/{delivery['id']}"
    assert delivery["endpoint_id"] == endpoint["id"]
    assert (delivery["type"], delivery["state"], delivery["attempts"]) == ("webhook.test", "pending", 0)
    assert (delivery["event_id"], delivery["user_id"]) == (None, None)
    assert delivery["webhook_id"] == f"test_{delivery['id']}_{endpoint['id']}"
    assert api.get(answer.headers["location"]).json() == delivery
    assert api.get(DELIVERIES).json()["items"] == [delivery]


def test_a_disabled_endpoint_is_sent_no_test(api: httpx.Client) -> None:
    endpoint = make(api)
    api.patch(at(endpoint), json={"enabled": False})
    problem_of(api.post(at(endpoint, "/test")), 409, "webhook_endpoint_disabled")
    assert api.get(DELIVERIES).json()["items"] == []
