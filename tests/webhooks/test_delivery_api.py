"""Deliveries over HTTP: what is told of them, and what may be done to them."""

from typing import get_args

import httpx
import pytest
from sqlalchemy import Engine

from app.texts import EventType
from tests.problems import mistakes, problem_of
from tests.webhooks.managed import DELIVERIES, at, make, put_delivery, states, users

pytestmark = pytest.mark.usefixtures("none_left")


def test_a_delivery_tells_what_its_last_attempt_came_to(api: httpx.Client, auditor: Engine) -> None:
    number = put_delivery(
        auditor,
        endpoint := make(api),
        "retrying",
        user_id=2**64 - 1,
        event_id=1042,
        attempts=2,
        last_attempt_at="2026-11-30 09:31:05.323456",
        last_status=503,
        last_duration_ms=120,
        last_error="answered 503",
        last_answer="Down ☎",
    )
    assert api.get(f"{DELIVERIES}/{number}").json() == {
        "id": number,
        "webhook_id": f"evt_1042_{endpoint['id']}",
        "endpoint_id": endpoint["id"],
        "event_id": "1042",
        "user_id": "18446744073709551615",
        "type": "device.revoked",
        "state": "retrying",
        "attempts": 2,
        "created_at": "2026-11-30T09:31:00.000000Z",
        "next_attempt_at": "2126-11-30T00:00:00.000000Z",
        "last_attempt_at": "2026-11-30T09:31:05.323456Z",
        "last_status": 503,
        "last_duration_ms": 120,
        "last_error": "answered 503",
        "last_answer": "Down ☎",
    }


def test_deliveries_are_listed_newest_first_by_state_endpoint_event_and_type(
    api: httpx.Client, auditor: Engine
) -> None:
    one, two = make(api), make(api)
    event = 10**12
    ids = [
        put_delivery(auditor, one, "delivered", event_id=event),
        put_delivery(auditor, two, "discarded", event_id=event),
        put_delivery(auditor, one, "discarded", type="quota.changed"),
        put_delivery(auditor, two, "pending", user_id=78),
        api.post(at(one, "/test")).json()["id"],
    ]

    def listed(**query: str) -> list[int]:
        found = api.get(DELIVERIES, params=query).json()["items"]
        return [ids.index(delivery["id"]) for delivery in found]

    assert listed() == [4, 3, 2, 1, 0]
    assert listed(state="discarded") == [2, 1]
    assert listed(endpoint_id=one["id"]) == [4, 2, 0]
    assert listed(endpoint_id=one["id"], state="discarded") == [2]
    assert listed(event_id=str(event)) == [1, 0]
    assert listed(type="webhook.test") == [4]
    assert listed(type="quota.changed", state="delivered") == []
    assert listed(endpoint_id="999999999") == []

    pages: list[list[int]] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get(DELIVERIES, params={"limit": "2"} | cursor).json()
        pages.append([ids.index(delivery["id"]) for delivery in page["items"]])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert pages == [[4, 3], [2, 1], [0]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "lost"),
        ("endpoint_id", "0"),
        ("event_id", "a"),
        ("type", "device.stolen"),
        ("limit", "0"),
        ("cursor", "x"),
        ("stat", "discarded"),
    ],
)
def test_a_filter_that_is_none_is_refused(api: httpx.Client, name: str, value: str) -> None:
    assert mistakes(api.get(DELIVERIES, params={name: value})) == [("query", f"#/{name}")]


@pytest.mark.parametrize(("name", "kind"), [("endpoint_id", "an endpoint"), ("event_id", "an event")])
def test_a_filter_of_no_id_is_told_what_an_id_is(api: httpx.Client, name: str, kind: str) -> None:
    (mistake,) = problem_of(api.get(DELIVERIES, params={name: "x"}), 422, "invalid_request")["errors"]
    assert mistake["detail"] == f"must be the id of {kind}: 1 to 18 digits 0-9, the first not 0"


OUTCOMES = {
    "waiting": (409, 200),
    "pending": (409, 200),
    "claimed": (409, 409),
    "retrying": (200, 200),
    "delivered": (409, 409),
    "discarded": (200, 409),
}


@pytest.mark.parametrize(("state", "outcomes"), OUTCOMES.items())
def test_retry_and_discard_are_for_some_states_only(
    api: httpx.Client, auditor: Engine, state: str, outcomes: tuple[int, int]
) -> None:
    endpoint = make(api)
    for call, status, after in zip(("retry", "discard"), outcomes, ("", "discarded"), strict=True):
        number = put_delivery(auditor, endpoint, state)
        answer = api.post(f"{DELIVERIES}/{number}/{call}")
        assert answer.status_code == status, call
        if status == 409:
            assert problem_of(answer, 409, "webhook_delivery_in_other_state")["state"] == state
            assert states(auditor, number) == [state]
        elif after:
            assert answer.json()["state"] == after
        else:
            tried = answer.json()
            assert tried["state"] == ("retrying" if state == "retrying" else "pending")
            assert tried["attempts"] == (10 if state == "retrying" else 0)
            assert tried["next_attempt_at"] < "2100"


@pytest.mark.parametrize("state", ["retrying", "discarded"])
def test_nothing_is_tried_now_at_a_disabled_endpoint(api: httpx.Client, auditor: Engine, state: str) -> None:
    endpoint = make(api)
    number = put_delivery(auditor, endpoint, state)
    api.patch(at(endpoint), json={"enabled": False})
    before = api.get(f"{DELIVERIES}/{number}").json()
    problem_of(api.post(f"{DELIVERIES}/{number}/retry"), 409, "webhook_endpoint_disabled")
    assert api.get(f"{DELIVERIES}/{number}").json() == before
    given_up = api.post(f"{DELIVERIES}/{number}/discard")
    assert given_up.status_code == (200 if state == "retrying" else 409)
    api.patch(at(endpoint), json={"enabled": True})
    assert api.post(f"{DELIVERIES}/{number}/retry").json()["state"] == "pending"


def test_nothing_is_tried_now_at_an_endpoint_that_is_deleted(api: httpx.Client, auditor: Engine) -> None:
    endpoint = make(api)
    number = put_delivery(auditor, endpoint, "discarded")
    api.delete(at(endpoint))
    problem_of(api.post(f"{DELIVERIES}/{number}/retry"), 404, "webhook_endpoint_not_found")
    assert states(auditor, number) == ["discarded"]


def test_what_stands_behind_a_discarded_delivery_goes_on(api: httpx.Client, auditor: Engine) -> None:
    endpoint = make(api)
    user = next(users)
    ids = [
        put_delivery(auditor, endpoint, state, user_id=user) for state in ("retrying", "waiting", "waiting")
    ]
    assert api.post(f"{DELIVERIES}/{ids[0]}/discard").status_code == 200
    assert states(auditor, *ids) == ["discarded", "pending", "waiting"]


def test_every_type_of_event_can_be_asked_for(api: httpx.Client) -> None:
    types = list(get_args(EventType))
    assert make(api, event_types=types)["event_types"] == types
