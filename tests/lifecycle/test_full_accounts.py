"""Ways out of a full account: replacing a device, and having one evicted."""

from collections.abc import Callable

import httpx
import pytest
from sqlalchemy import Engine

from app.db import Database, Tx
from app.devices import changes
from app.errors import DeviceLimitReached
from app.etags import Precondition
from app.quotas.service import set_limit
from app.settings import Settings
from tests.callers import at_once, in_rounds, register, statuses
from tests.lifecycle.rows import put_own_limit, run
from tests.lifecycle.steps import held, waiting
from tests.lifecycle.trail import devices_of, replayed, types_of
from tests.servers import Server
from tests.services import Service
from tests.use_cases import LIMIT, ORIGIN
from tests.use_cases import register as register_in

pytestmark = pytest.mark.locking


def fill(service: Service, user: int) -> None:
    assert statuses(at_once(service, [register(user, "a"), register(user, "b")])) == {201: 2}


def evicted(answer: httpx.Response) -> list[str]:
    return [device["device_id"] for device in answer.json()["evicted"]]


def seen(auditor: Engine, user: int, device_id: str, *, registered: int, last_seen: int) -> None:
    """Minutes ago."""
    run(
        auditor,
        "UPDATE devices SET registered_at = UTC_TIMESTAMP(6) - INTERVAL :registered MINUTE,"
        " last_seen_at = UTC_TIMESTAMP(6) - INTERVAL :last_seen MINUTE"
        " WHERE user_id = :user AND device_id = :device",
        user=user,
        device=device_id,
        registered=registered,
        last_seen=last_seen,
    )


def test_of_two_replaces_of_the_same_victim_at_once_one_wins_and_one_finds_nobody(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    users = [new_user() for _ in range(20)]
    for user in users:
        fill(service, user)
    rounds = in_rounds(
        service,
        [[register(user, device, replace_device_id="a") for device in ("c", "d")] for user in users],
    )
    assert [statuses(answers) for answers in rounds] == [{201: 1, 404: 1}] * len(users)
    for user, answers in zip(users, rounds, strict=True):
        (winner,) = (answer.json() for answer in answers if answer.status_code == 201)
        assert winner["quota"]["used"] == LIMIT
        assert devices_of(auditor, user) == ["b", winner["device"]["device_id"]]
        assert replayed(auditor, user, LIMIT).types == {"device.registered": 3, "device.replaced": 1}


def test_a_replace_whose_victim_is_gone_changes_nothing(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    fill(service, user)
    (answer,) = at_once(service, [register(user, "c", replace_device_id="nobody", on_limit="evict_oldest")])
    assert (answer.status_code, answer.json()["code"]) == (404, "device_not_found")
    assert devices_of(auditor, user) == ["a", "b"]
    assert types_of(auditor, user) == ["device.registered"] * 2


def test_a_replace_under_a_limit_that_was_lowered_changes_nothing(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    fill(service, user)
    put_own_limit(auditor, user, 1)
    (answer,) = at_once(service, [register(user, "c", replace_device_id="a")])
    assert answer.status_code == 409
    assert (answer.json()["used"], answer.json()["limit"], answer.json()["need_to_remove"]) == (2, 1, 2)
    assert devices_of(auditor, user) == ["a", "b"]


@pytest.mark.parametrize(
    ("on_limit", "victim"), [("evict_oldest", "old"), ("evict_least_recently_seen", "unseen")]
)
def test_an_eviction_takes_the_device_that_it_names(
    on_limit: str, victim: str, service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    at_once(service, [register(user, "old"), register(user, "unseen")])
    seen(auditor, user, "old", registered=30, last_seen=10)
    seen(auditor, user, "unseen", registered=20, last_seen=20)
    (answer,) = at_once(service, [register(user, "new", on_limit=on_limit)])
    assert answer.status_code == 201
    assert evicted(answer) == [victim]
    assert answer.json()["quota"]["used"] == LIMIT
    assert devices_of(auditor, user) == sorted({"old", "unseen", "new"} - {victim})


def test_an_eviction_under_a_lowered_limit_takes_as_many_as_it_must(
    service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    fill(service, user)
    seen(auditor, user, "b", registered=30, last_seen=30)
    put_own_limit(auditor, user, 1)
    (answer,) = at_once(service, [register(user, "c", on_limit="evict_oldest")])
    assert evicted(answer) == ["b", "a"]
    assert devices_of(auditor, user) == ["c"]


def test_an_eviction_that_meets_a_heartbeat_in_flight_spares_the_device_that_it_is_of(
    server: Server, db: Database, other: Database, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    for device in ("a", "b"):
        db.transact(register_in, user, device)

    def register_evicting(tx: Tx) -> list[str]:
        new = register_in(tx, user, "c", on_limit="evict_least_recently_seen")
        return [device.device_id for device in new.evicted]

    with held(db, changes.heartbeat, user, "a") as beat, waiting(server, other, register_evicting) as new:
        assert beat.commit().device_id == "a"
        assert new.result() == ["b"]
    assert devices_of(auditor, user) == ["a", "c"]


@pytest.mark.parametrize("on_limit", ["evict_oldest", "evict_least_recently_seen"])
def test_20_evicting_registrations_at_once_leave_2_devices_and_a_trail_that_tells_how(
    on_limit: str, service: Service, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    answers = at_once(service, [register(user, f"device-{one}", on_limit=on_limit) for one in range(20)])
    assert statuses(answers) == {201: 20}
    assert sum(len(evicted(answer)) for answer in answers) == 18
    assert len(devices_of(auditor, user)) == LIMIT
    types = replayed(auditor, user, LIMIT).types
    assert types == {"device.registered": 20, "device.evicted": 18}


def test_a_limit_that_is_lowered_waits_for_a_registration_that_counted_against_the_old_one(
    server: Server, db: Database, other: Database, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    db.transact(register_in, user, "a")
    lower = (set_limit, Settings.model_construct(default_device_limit=LIMIT), ORIGIN, user, 1, Precondition())
    with held(db, register_in, user, "b") as new, waiting(server, other, *lower) as lowered:
        assert new.commit().created
        quota = lowered.result().quota
        assert (quota.limit, quota.used) == (1, 2)
    assert types_of(auditor, user) == ["device.registered", "device.registered", "quota.changed"]
    replayed(auditor, user, LIMIT)


def test_a_registration_that_waits_for_a_lowered_limit_counts_against_it(
    server: Server, db: Database, other: Database, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    db.transact(register_in, user, "a")
    lower = (set_limit, Settings.model_construct(default_device_limit=LIMIT), ORIGIN, user, 1, Precondition())
    with held(db, *lower) as lowered, waiting(server, other, register_in, user, "b") as new:
        assert lowered.commit().quota.limit == 1
        with pytest.raises(DeviceLimitReached):
            new.result()
    assert devices_of(auditor, user) == ["a"]
