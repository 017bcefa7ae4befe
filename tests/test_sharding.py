"""A registration touches the rows of one user alone, and each of its statements says whose.

So a database that is sharded by `user_id` leads each statement to one shard: docs/scale.md.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
from sqlalchemy import Engine

from app.db import Database
from app.devices.group_service import Call, register_together
from app.devices.schemas import NewDevice
from app.settings import load_settings
from tests.one_shard import Scattered, users_of
from tests.proxy import Proxy, proxied
from tests.services import PATIENT, ROOT_KEY, running_service
from tests.single_calls import end_lease, register
from tests.use_cases import ORIGIN

pytestmark = pytest.mark.locking

LIMIT = 2
MOST_PER_DAY = 4
# Of no table, and so of no shard: the lock of an Idempotency-Key, and the clock.
WITHOUT_TABLE = re.compile(
    r"COMMIT|ROLLBACK|SELECT (GET_LOCK\('\w+', 0\)|RELEASE_LOCK\('\w+'\)|UTC_TIMESTAMP\(6\) AS \w+)"
)


@dataclass
class Recorder:
    """A service behind a proxy, and what it sent to its database."""

    api: httpx.Client
    proxy: Proxy

    def sent_by(self, user: int, statuses: list[int], *bodies: dict[str, object], key: str = "") -> list[str]:
        """The statements on tables by registrations, one after another, which are answered as expected."""
        self.proxy.statements.clear()
        headers = {"Idempotency-Key": key} if key else {}
        path = f"/v1/users/{user}/devices"
        answers = [self.api.post(path, json=body, headers=headers) for body in bodies]
        assert [answer.status_code for answer in answers] == statuses
        return [one for one in self.proxy.statements if not WITHOUT_TABLE.fullmatch(one)]


@pytest.fixture(scope="module", params=["off", "on"])
def recorder(
    request: pytest.FixtureRequest, database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recorder]:
    settings = PATIENT | {
        "group_size": 1,
        "database_pool_size": 1,
        "default_device_limit": LIMIT,
        "max_registrations_per_day": MOST_PER_DAY,
        "multi_writer": request.param,
    }
    folder = tmp_path_factory.mktemp("sharding")
    with (
        proxied(database_url) as (proxy, url),
        running_service(url, folder, **settings) as service,
        service.client() as api,
    ):
        register(api, 1, device_id="so-that-the-connection-is-made")
        yield Recorder(api, proxy)


def device(device_id: str, **more: object) -> dict[str, object]:
    return {"device_id": device_id, **more}


def test_each_statement_of_a_registration_says_whose_rows_it_is_after(
    recorder: Recorder, auditor: Engine, new_user: Callable[[], int]
) -> None:
    user = new_user()
    sent = [
        recorder.sent_by(user, [201], device("a")),  # new, without a lock row
        recorder.sent_by(user, [201], device("b", lease_seconds=60, metadata={"user_id": "7"})),
        recorder.sent_by(user, [200], device("a", name="known")),
        recorder.sent_by(user, [409], device("c")),
        recorder.sent_by(user, [404], device("c", replace_device_id="nobodys")),
        recorder.sent_by(user, [201], device("c", replace_device_id="a")),
        recorder.sent_by(user, [201], device("d", on_limit="evict_oldest", lease_seconds=60)),
        recorder.sent_by(user, [429], device("e", on_limit="evict_least_recently_seen")),
    ]
    end_lease(auditor, user, "d")
    sent.append(recorder.sent_by(user, [200], device("c")))  # which removes what has expired
    assert {frozenset(users_of(statement)) for one in sent for statement in one} == {frozenset({user})}
    assert all(len(one) >= len(["lock", "state"]) for one in sent)


def test_so_does_each_statement_of_one_with_an_idempotency_key(
    recorder: Recorder, new_user: Callable[[], int]
) -> None:
    user = new_user()
    sent = recorder.sent_by(user, [201, 201, 422], device("a"), device("a"), device("b"), key="once")
    assert {frozenset(users_of(statement)) for statement in sent} == {frozenset({user})}
    assert any("idempotency_keys" in statement for statement in sent)


def test_evicting_by_last_use_says_whose_rows_it_is_after(
    recorder: Recorder, new_user: Callable[[], int]
) -> None:
    user = new_user()
    recorder.sent_by(user, [201, 201], device("a"), device("b"))
    sent = recorder.sent_by(user, [201], device("c", on_limit="evict_least_recently_seen"))
    assert {frozenset(users_of(statement)) for statement in sent} == {frozenset({user})}


def test_so_does_each_statement_of_the_other_calls(recorder: Recorder, new_user: Callable[[], int]) -> None:
    user = new_user()
    recorder.sent_by(user, [201, 201], device("a", lease_seconds=60), device("b"))
    sent = recorder.proxy.statements
    sent.clear()
    for method, path, body in (
        ("GET", "devices", None),
        ("GET", "devices/a", None),
        ("PATCH", "devices/a", {"name": "mine"}),
        ("POST", "devices/a/heartbeat", None),
        ("DELETE", "devices/a?block=true", None),
        ("POST", "devices/a/allow", None),
        ("DELETE", "devices", None),
        ("PUT", "quota", {"limit": 5}),
        ("GET", "quota", None),
        ("DELETE", "quota", None),
        ("GET", "events", None),
    ):
        assert recorder.api.request(method, f"/v1/users/{user}/{path}", json=body).is_success, path
    on_tables = [one for one in sent if not WITHOUT_TABLE.fullmatch(one)]
    assert {frozenset(users_of(statement)) for statement in on_tables} == {frozenset({user})}


def test_a_group_s_statements_name_many_users_at_once(database_url: str, new_user: Callable[[], int]) -> None:
    """Hence CUPO_GROUP_SIZE=1 where users are in shards. By the way, it shows that a scatter is seen."""
    users = sorted(new_user() for _ in range(2))
    with proxied(database_url) as (proxy, url):
        settings = load_settings(database_url=url, root_key=ROOT_KEY)
        database = Database(settings)
        calls = [Call(ORIGIN, user, "a", NewDevice(device_id="a")) for user in users]
        register_together(database, database.node_of(users[0]), settings, calls)
        database.close()
    (lock,) = (one for one in proxy.statements if "SKIP LOCKED" in one)
    (insert,) = (one for one in proxy.statements if one.startswith("INSERT INTO devices"))
    with pytest.raises(Scattered):
        users_of(lock)
    assert "JSON_TABLE" in insert  # which no vtgate knows
    assert all(str(user) in insert for user in users)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT device_id FROM devices WHERE device_id = 'a'",
        "SELECT device_id FROM devices WHERE user_id = 5 OR device_id = 'a'",
        "SELECT device_id FROM devices WHERE user_id IN (5, 6)",
        "SELECT device_id FROM devices WHERE user_id > 5",
        "SELECT device_id FROM devices d WHERE d.user_id = d.user_id",
        "SELECT (SELECT COUNT(*) FROM devices) FROM user_quotas WHERE user_id = 5",
        "SELECT q.revision FROM user_quotas q LEFT JOIN devices d ON d.user_id = 5 WHERE d.device_id = 'a'",
        "UPDATE devices SET user_id = 5 WHERE device_id = 'a'",
        "DELETE FROM idempotency_keys WHERE scope_digest = 'x'",
        "INSERT INTO devices (device_id) VALUES ('a')",
        "INSERT INTO devices (user_id, device_id) SELECT user_id, 'a' FROM user_quotas WHERE user_id = 5",
    ],
)
def test_what_does_not_say_whose_rows_it_is_after_is_told(statement: str) -> None:
    with pytest.raises(Scattered):
        users_of(statement)
