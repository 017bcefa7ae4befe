"""How often a user may register something new, and which devices may not register at all."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine

from tests.callers import Call, at_once, in_rounds, one_by_one, register, revoke, statuses
from tests.lifecycle.rows import run
from tests.lifecycle.trail import devices_of, replayed, types_of
from tests.services import Service, running_service

pytestmark = pytest.mark.locking

NewUser = Callable[[], int]
A_DAY = 86_400
MOST = 3
MOVED_IN = (
    "INSERT INTO events (user_id, occurred_at, type, device_id, actor, request_id, data)"
    " VALUES (:user, UTC_TIMESTAMP(6), 'device.registered', 'moved-in', :actor, 'a-request', '{}')"
)


@pytest.fixture(scope="module")
def capped(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Limit 10, and 3 new devices a day."""
    folder = tmp_path_factory.mktemp("capped")
    with running_service(
        database_url, folder, default_device_limit=10, max_registrations_per_day=MOST
    ) as made:
        yield made


def age_trail(auditor: Engine, user: int, seconds: int) -> None:
    statement = "UPDATE events SET occurred_at = occurred_at - INTERVAL :seconds SECOND WHERE user_id = :user"
    run(auditor, statement, user=user, seconds=seconds)


def test_of_20_new_devices_at_once_as_many_register_as_a_day_allows(
    capped: Service, auditor: Engine, new_user: NewUser
) -> None:
    users = [new_user() for _ in range(10)]
    rounds = in_rounds(capped, [[register(user, f"device-{one}") for one in range(20)] for user in users])
    assert [statuses(answers) for answers in rounds] == [{201: MOST, 429: 20 - MOST}] * len(users)
    for user in users:
        assert len(devices_of(auditor, user)) == MOST
        assert types_of(auditor, user) == ["device.registered"] * MOST


def test_revoking_gives_no_registration_back_and_a_known_device_needs_none(
    capped: Service, new_user: NewUser
) -> None:
    user = new_user()
    calls = [
        *(
            call
            for one in range(MOST)
            for call in (register(user, f"device-{one}"), revoke(user, f"device-{one}"))
        ),
        register(user, "one-more"),
    ]
    answers = one_by_one(capped, calls)
    assert [answer.status_code for answer in answers] == [201, 204] * MOST + [429]
    assert answers[-1].json()["code"] == "registration_rate_exceeded"

    other = new_user()
    again = one_by_one(capped, [register(other, f"device-{one}") for one in range(MOST)] * 2)
    assert [answer.status_code for answer in again] == [201] * MOST + [200] * MOST


def test_devices_that_were_imported_do_not_count(capped: Service, auditor: Engine, new_user: NewUser) -> None:
    user = new_user()
    run(auditor, MOVED_IN, user=user, actor="import")
    run(auditor, MOVED_IN, user=user, actor="root_key")
    answers = one_by_one(capped, [register(user, f"device-{one}") for one in range(MOST)])
    assert [answer.status_code for answer in answers] == [201] * (MOST - 1) + [429]


def test_retry_after_is_when_the_next_new_device_may_come(
    capped: Service, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    one_by_one(capped, [register(user, "a")])
    age_trail(auditor, user, 3600)
    one_by_one(capped, [register(user, "b"), register(user, "c")])
    (refused,) = one_by_one(capped, [register(user, "d")])
    wait_seconds = int(refused.headers["retry-after"])
    assert A_DAY - 3600 - 30 <= wait_seconds <= A_DAY - 3600  # the calls themselves take a moment

    age_trail(auditor, user, wait_seconds - 2)
    (too_early,) = one_by_one(capped, [register(user, "d")])
    assert too_early.status_code == 429
    assert int(too_early.headers["retry-after"]) <= 2
    age_trail(auditor, user, 2)
    (in_time, next_one) = one_by_one(capped, [register(user, "d"), register(user, "e")])
    assert (in_time.status_code, next_one.status_code) == (201, 429)
    assert int(next_one.headers["retry-after"]) == pytest.approx(3600, abs=30)


def block(user: int, device_id: str) -> Call:
    return Call("DELETE", f"/v1/users/{user}/devices/{device_id}?block=true")


def allow(user: int, device_id: str) -> Call:
    return Call("POST", f"/v1/users/{user}/devices/{device_id}/allow")


def test_a_blocked_device_is_refused_until_it_is_allowed_and_is_then_an_ordinary_one(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, other = new_user(), new_user()
    a = register(user, "a")
    calls = [a, block(user, "a"), a, register(user, "b"), register(other, "a"), allow(user, "a"), a, a]
    answers = one_by_one(service, [*calls, allow(user, "a"), revoke(user, "a"), a])
    assert [answer.status_code for answer in answers] == [
        *(201, 204, 403, 201, 201, 204, 201, 200),
        *(404, 204, 201),
    ]
    assert answers[2].json()["code"] == "device_blocked"
    assert devices_of(auditor, user) == ["a", "b"]
    replayed(auditor, user, 2)


def test_a_blocked_device_comes_back_neither_by_transfer_nor_in_the_place_of_another(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user, sender = new_user(), new_user()
    one_by_one(service, [register(user, "a"), block(user, "a"), register(user, "b"), register(sender, "a")])
    transfer = Call("POST", f"/v1/users/{sender}/devices/a/transfer", {"to_user_id": str(user)})
    answers = one_by_one(
        service,
        [
            transfer,
            register(user, "a", replace_device_id="b"),
            register(user, "a", on_limit="evict_oldest"),
        ],
    )
    assert [answer.status_code for answer in answers] == [403] * 3
    assert (devices_of(auditor, user), devices_of(auditor, sender)) == (["b"], ["a"])


def test_registrations_that_race_with_a_block_leave_no_device_and_a_block_that_sticks(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    """Each comes before the block and finds the device, or after it and is refused."""
    users = [new_user() for _ in range(20)]
    at_once(service, [register(user, "a") for user in users])
    rounds = in_rounds(service, [[*[register(user, "a")] * 5, block(user, "a")] for user in users])
    for user, answers in zip(users, rounds, strict=True):
        *registrations, blocked = answers
        assert blocked.status_code == 204
        assert set(statuses(registrations)) <= {200, 403}
        assert devices_of(auditor, user) == []
        assert types_of(auditor, user) == ["device.registered", "device.revoked", "device.blocked"]


def test_of_10_allows_at_once_one_lifts_the_block(
    service: Service, auditor: Engine, new_user: NewUser
) -> None:
    user = new_user()
    one_by_one(service, [register(user, "a"), block(user, "a")])
    assert statuses(at_once(service, [allow(user, "a")] * 10)) == {204: 1, 404: 9}
    assert types_of(auditor, user).count("device.allowed") == 1
