"""From a call to its receiver and back: the service and its worker as they run, seen from outside."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from app.migrations import migrate
from app.settings import load_settings
from tests.servers import Server, fresh_database
from tests.services import POLL_SECONDS, ROOT_KEY, running_service
from tests.single_calls import NewUser, address, register, trail
from tests.webhooks.receivers import Receiver, answer, answering, receiving

HOME = "/v1/webhook-endpoints"
DELIVERIES = "/v1/webhook-deliveries"
PATIENCE_SECONDS = 30


@pytest.fixture(scope="module")
def telling(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with a worker in it, which may send to the loopback."""
    allowed: dict[str, Any] = {
        "webhooks_allow_http": True,
        "webhooks_allow_private": True,
        "embedded_worker": True,
    }
    with fresh_database(server, "cupo_test_telling") as url:
        migrate(load_settings(database_url=url, root_key=ROOT_KEY))
        folder = tmp_path_factory.mktemp("telling")
        with running_service(url, folder, sweep_interval_seconds=0.2, **allowed) as running:
            with running.client() as client:
                yield client
            assert "Traceback" not in running.logged()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def make(telling: httpx.Client, receiver: Receiver, **fields: Any) -> Any:
    made = telling.post(HOME, json={"url": receiver.url} | fields)
    assert made.status_code == 201, made.text
    return made.json()


def until(holds: Callable[[], Any]) -> Any:
    """What `holds` gives once that is true. Polled: who waits is told nothing by those who work."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < give_up_at
        time.sleep(POLL_SECONDS)
    return found


def delivery(telling: httpx.Client, accepted: httpx.Response, *states: str) -> Any:
    """The delivery that a call has named, once it is in one of these states."""

    def found() -> Any:
        read = telling.get(accepted.headers["location"]).json()
        return read if read["state"] in states else None

    return until(found)


def test_what_happens_to_a_user_s_devices_is_told_in_order_and_as_the_trail_says(
    telling: httpx.Client, receiver: Receiver, new_user: NewUser
) -> None:
    endpoint = make(telling, receiver)
    user = new_user()
    register(telling, user, device_id="a", name="Анин 📱", metadata={"n": 1.0})
    telling.patch(address(user, "a"), json={"name": "B"})
    telling.delete(address(user, "a"), params={"reason": "lost", "block": True})
    events = trail(telling, user)
    until(lambda: len(receiver.received) == len(events))
    told = [Webhook(endpoint["secret"]).verify(one.body, one.headers) for one in receiver.received]
    for message, event in zip(told, events, strict=True):
        assert (message["type"], message["timestamp"]) == (event["type"], event["occurred_at"])
        assert message["data"]["event_id"] == event["id"]
        assert message["data"]["user_id"] == str(user)
        names = ("device_id", "actor", "reason", "request_id", "data")
        assert {name: message["data"][name] for name in names} == {name: event[name] for name in names}
    ids = [one.headers["webhook-id"] for one in receiver.received]
    assert ids == [f"evt_{event['id']}_{endpoint['id']}" for event in events]
    telling.delete(f"{HOME}/{endpoint['id']}")


def test_an_endpoint_is_told_of_the_types_that_it_asks_for(
    telling: httpx.Client, receiver: Receiver, new_user: NewUser
) -> None:
    endpoint = make(telling, receiver, event_types=["device.revoked"])
    user = new_user()
    register(telling, user, device_id="a")
    telling.delete(address(user, "a"))
    register(telling, user, device_id="b")
    telling.post(f"{HOME}/{endpoint['id']}/test")
    until(lambda: len(receiver.received) == 2)
    types = {json.loads(one.body)["type"] for one in receiver.received}
    assert types == {"device.revoked", "webhook.test"}
    telling.delete(f"{HOME}/{endpoint['id']}")


def test_a_test_event_shows_what_came_of_it(telling: httpx.Client) -> None:
    with receiving(answering(answer(500, b"broken \xff"))) as receiver:
        endpoint = make(telling, receiver)
        accepted = telling.post(f"{HOME}/{endpoint['id']}/test")
        failed = delivery(telling, accepted, "retrying")
    assert (failed["attempts"], failed["last_status"], failed["last_error"]) == (1, 500, "answered 500")
    assert failed["last_answer"] == "broken \N{REPLACEMENT CHARACTER}"
    assert failed["last_duration_ms"] >= 0
    (received,) = receiver.received
    assert received.headers["webhook-id"] == failed["webhook_id"]
    telling.delete(f"{HOME}/{endpoint['id']}")


def test_a_retried_delivery_is_sent_again_with_the_same_id_and_bytes(telling: httpx.Client) -> None:
    with receiving(answering(answer(503, b"", "Retry-After: 3600"), answer(204))) as receiver:
        endpoint = make(telling, receiver)
        accepted = telling.post(f"{HOME}/{endpoint['id']}/test")
        waiting = delivery(telling, accepted, "retrying")
        assert waiting["next_attempt_at"] > waiting["last_attempt_at"]
        assert telling.post(f"{DELIVERIES}/{waiting['id']}/retry").status_code == 200
        done = delivery(telling, accepted, "delivered")
    assert (done["attempts"], done["last_status"], done["last_error"]) == (2, 204, None)
    first, second = receiver.received
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == done["webhook_id"]
    telling.delete(f"{HOME}/{endpoint['id']}")


def test_410_disables_the_endpoint_until_it_is_enabled(telling: httpx.Client) -> None:
    with receiving(answering(answer(410), answer(200))) as receiver:
        endpoint = make(telling, receiver)
        path = f"{HOME}/{endpoint['id']}"
        accepted = telling.post(f"{path}/test")
        disabled = until(lambda: None if (one := telling.get(path).json())["enabled"] else one)
        assert (disabled["disabled_because"], disabled["revision"]) == ("gone", 2)
        assert telling.post(f"{path}/test").status_code == 409
        assert telling.patch(path, json={"enabled": True}).json()["disabled_because"] is None
        telling.post(f"{DELIVERIES}/{accepted.json()['id']}/retry")
        assert delivery(telling, accepted, "delivered")["attempts"] == 2
    telling.delete(path)


def test_both_secrets_sign_during_a_rotation_and_only_the_new_one_after_it(
    telling: httpx.Client, receiver: Receiver
) -> None:
    old = make(telling, receiver)
    path = f"{HOME}/{old['id']}"

    def verified_by(secret: str) -> bool:
        """Whether a test that is sent now can be verified with the secret."""
        before = len(receiver.received)
        telling.post(f"{path}/test")
        until(lambda: len(receiver.received) > before)
        try:
            Webhook(secret).verify(receiver.received[-1].body, receiver.received[-1].headers)
        except WebhookVerificationError:
            return False
        return True

    new = telling.post(f"{path}/rotate-secret").json()
    assert [verified_by(one["secret"]) for one in (old, new)] == [True, True]
    last = telling.post(f"{path}/rotate-secret", params={"grace_seconds": 1}).json()
    until(lambda: telling.get(path).json()["previous_secret_until"] is None)
    assert [verified_by(one["secret"]) for one in (old, new, last)] == [False, False, True]
    telling.delete(path)


def test_a_deleted_endpoint_is_told_nothing_more_and_its_open_deliveries_are_discarded(
    telling: httpx.Client, new_user: NewUser
) -> None:
    with receiving(answering(answer(500))) as receiver:
        endpoint = make(telling, receiver)
        user = new_user()
        for device in ("a", "b", "c"):
            register(telling, user, device_id=device)
        query = {"endpoint_id": endpoint["id"]}
        until(lambda: len(telling.get(DELIVERIES, params=query).json()["items"]) == 3)
        until(lambda: telling.get(DELIVERIES, params=query | {"state": "retrying"}).json()["items"])
        assert telling.delete(f"{HOME}/{endpoint['id']}").status_code == 204
        discarded = query | {"state": "discarded"}
        until(lambda: len(telling.get(DELIVERIES, params=discarded).json()["items"]) == 3)
    assert len(receiver.received) == 1


def test_where_neither_is_allowed_no_plain_and_no_private_endpoint_is_served(
    telling: httpx.Client, api: httpx.Client
) -> None:
    """`api` is a service with the settings as they come."""
    for url in ("http://hooks.example.com/", "https://127.0.0.1/"):
        assert telling.post(HOME, json={"url": url}).status_code == 201
        assert api.post(HOME, json={"url": url}).status_code == 422
