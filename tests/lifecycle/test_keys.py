"""One effect for all calls with the same Idempotency-Key, whatever comes at once or in between."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from tests.callers import Call, at_once, in_rounds, one_by_one, register, revoke, statuses
from tests.lifecycle.rows import run
from tests.lifecycle.test_transfers import transfer
from tests.lifecycle.trail import devices_of, replayed, types_of
from tests.services import Service

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]


def with_key(call: Call, key: str) -> Call:
    return Call(call.method, call.path, call.json, {"Idempotency-Key": key})


def new_key() -> str:
    return secrets.token_hex(8)


def any_device(user: int, key: str, **fields: object) -> Call:
    """A registration that would make another device each time."""
    return with_key(Call("POST", f"/v1/users/{user}/devices", fields), key)


def is_replayed(answer: httpx.Response) -> bool:
    return "idempotent-replayed" in answer.headers


def parts(answer: httpx.Response) -> tuple[int, Any, Mapping[str, str | None]]:
    """What must be the same each time the answer is given."""
    named = {name: answer.headers.get(name) for name in ("etag", "location", "content-type")}
    return answer.status_code, answer.content, named


def test_of_20_calls_with_one_key_at_once_one_takes_effect_and_the_others_say_so(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(10)]
    rounds = in_rounds(service, [[any_device(user, new_key())] * 20 for user in users])
    for user, answers in zip(users, rounds, strict=True):
        in_use = [answer for answer in answers if answer.status_code == 409]
        assert {answer.json()["code"] for answer in in_use} <= {"idempotency_key_in_use"}
        assert {answer.headers["retry-after"] for answer in in_use} <= {"1"}
        answered = [answer for answer in answers if answer.status_code == 201]
        assert len(answered) + len(in_use) == 20
        assert len({str(parts(answer)) for answer in answered}) == 1
        assert [is_replayed(answer) for answer in answered].count(False) == 1
        assert devices_of(auditor, user) == [answered[0].json()["device"]["device_id"]]
        assert types_of(auditor, user) == ["device.registered"]


def test_a_call_repeated_with_its_key_gets_its_first_answer_again(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    """Also when the device is gone by then: it is the answer that is repeated, not the call."""
    user, key = new_user(), new_key()
    first, second = one_by_one(service, [any_device(user, key)] * 2)
    device = first.json()["device"]["device_id"]
    _, third = one_by_one(service, [revoke(user, device), any_device(user, f'"{key}"')])
    assert first.status_code == 201
    assert parts(first) == parts(second) == parts(third)
    assert [is_replayed(answer) for answer in (first, second, third)] == [False, True, True]
    assert devices_of(auditor, user) == []
    assert types_of(auditor, user) == ["device.registered", "device.revoked"]


def test_each_kind_of_call_is_carried_out_once_for_its_key(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, receiver, key = new_user(), new_user(), new_key()
    path = f"/v1/users/{user}/devices"
    blocking = Call("DELETE", f"{path}/blocked?block=true")
    one_by_one(service, [register(user, "a"), register(user, "blocked"), blocking])
    posts = [
        Call("POST", f"{path}/a/heartbeat"),
        Call("POST", f"{path}/blocked/allow"),
        transfer(user, "a", receiver),
    ]
    keyed = [with_key(call, key) for call in posts]  # one key for all: the path tells them apart
    first, second = one_by_one(service, keyed), one_by_one(service, keyed)
    assert [answer.status_code for answer in first] == [200, 204, 200]
    assert [parts(answer) for answer in first] == [parts(answer) for answer in second]
    assert [is_replayed(answer) for answer in first + second] == [False] * 3 + [True] * 3
    assert types_of(auditor, user)[-2:] == ["device.allowed", "device.transferred"]
    assert types_of(auditor, receiver) == ["device.transferred"]


def test_of_two_transfers_there_and_back_with_keys_at_once_none_is_carried_out_twice(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    for _ in range(5):
        one, two, key = new_user(), new_user(), new_key()
        at_once(service, [register(one, "a"), register(two, "b")])
        there, back = with_key(transfer(one, "a", two), key), with_key(transfer(two, "b", one), key)
        answers = at_once(service, [there, back] * 5)
        assert set(statuses(answers)) <= {200, 409}
        assert {answer.json()["code"] for answer in answers if answer.status_code == 409} <= {
            "idempotency_key_in_use"
        }
        assert [devices_of(auditor, user) for user in (one, two)] == [["b"], ["a"]]
        assert replayed(auditor, one, 2).types["device.transferred"] == 2


def test_a_key_whose_first_answer_was_409_succeeds_once_a_slot_is_free(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, key = new_user(), new_key()
    c = with_key(register(user, "c"), key)
    answers = one_by_one(
        service, [register(user, "a"), register(user, "b"), c, c, revoke(user, "a"), c, revoke(user, "b"), c]
    )
    assert [answer.status_code for answer in answers] == [201, 201, 409, 409, 204, 201, 204, 201]
    assert [is_replayed(answer) for answer in answers] == [False] * 7 + [True]
    assert devices_of(auditor, user) == ["c"]


def test_a_key_sent_with_another_request_is_422_and_changes_nothing(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, key = new_user(), new_key()
    first, other = one_by_one(
        service, [with_key(register(user, "a"), key), with_key(register(user, "b"), key)]
    )
    assert (first.status_code, other.status_code) == (201, 422)
    assert other.json()["code"] == "idempotency_key_reused"
    assert devices_of(auditor, user) == ["a"]


def test_a_key_means_another_call_for_another_user(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    one, two, key = new_user(), new_user(), new_key()
    answers = one_by_one(service, [any_device(one, key), any_device(two, key)])
    assert [answer.status_code for answer in answers] == [201, 201]
    assert not any(map(is_replayed, answers))
    assert (len(devices_of(auditor, one)), len(devices_of(auditor, two))) == (1, 1)


def test_a_key_older_than_it_is_kept_runs_anew_and_is_kept_again(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, key = new_user(), new_key()

    def age(hours: int, seconds: int) -> None:
        answered_at = "UTC_TIMESTAMP(6) - INTERVAL :hours HOUR - INTERVAL :seconds SECOND"
        statement = f"UPDATE idempotency_keys SET answered_at = {answered_at} WHERE user_id = :user"  # noqa: S608
        assert run(auditor, statement, user=user, hours=hours, seconds=seconds) == 1

    (first,) = one_by_one(service, [any_device(user, key)])
    age(hours=23, seconds=3540)
    (still_kept,) = one_by_one(service, [any_device(user, key)])
    age(hours=24, seconds=1)
    anew, again = one_by_one(service, [any_device(user, key)] * 2)
    assert [is_replayed(answer) for answer in (first, still_kept, anew, again)] == [False, True, False, True]
    assert parts(still_kept) == parts(first)
    assert parts(again) == parts(anew)
    both = [answer.json()["device"]["device_id"] for answer in (first, anew)]
    assert devices_of(auditor, user) == sorted(both)


def test_an_answer_that_evicted_many_large_devices_is_kept_whole(service: Service, new_user: NewUser) -> None:
    user, key = new_user(), new_key()
    quota = Call("PUT", f"/v1/users/{user}/quota", {"limit": 40})
    large = {"metadata": {"text": "x" * 4000}}
    fill = [register(user, f"device-{number}", **large) for number in range(40)]
    one_by_one(service, [quota, *fill, Call("PUT", quota.path, {"limit": 1})])
    first, again = one_by_one(service, [with_key(register(user, "new", on_limit="evict_oldest"), key)] * 2)
    assert first.status_code == 201
    assert len(first.json()["evicted"]) == 40
    assert parts(first) == parts(again)
    assert is_replayed(again)
