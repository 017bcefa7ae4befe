"""The whole lifecycle from end to end, on the database server and on the embedded default alike."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, create_engine, text

from app.db import Database
from app.migrations import migrate_embedded
from app.settings import Settings, load_settings
from app.worker import Swept, run_once
from tests.databases import migrated_database
from tests.problems import problem_of
from tests.services import ROOT_KEY, running_service
from tests.single_calls import address, happened, listed, quota_of, register, set_limit, trail

MOST_REGISTRATIONS_PER_DAY = 20
A_DAY_SECONDS = 86_400
_users = itertools.count(1)


@dataclass(frozen=True)
class Home:
    """A service, its database, and users that nobody has used, the largest that there are."""

    api: httpx.Client
    settings: Settings
    engine: Engine

    def new_user(self) -> int:
        return int(2**64 - next(_users))

    def execute(self, statement: str, **values: object) -> int:
        with self.engine.connect() as connection:
            return connection.execute(text(statement), values).rowcount

    def end_leases(self) -> None:
        """Have all that there are run out long ago."""
        assert self.execute(
            "UPDATE devices SET expires_at = '2026-01-02 03:04:05.678901' WHERE lease_seconds > 0"
        )

    def sweep(self) -> Swept:
        database = Database(self.settings)
        try:
            return run_once(database, self.settings)
        finally:
            database.close()


@contextmanager
def served(url: str, folder: Path) -> Iterator[Home]:
    """A service with room for two devices of each user, on a database of its own."""
    settings = load_settings(database_url=url, root_key=ROOT_KEY)
    migrate_embedded(settings)
    engine = create_engine(settings.url, isolation_level="AUTOCOMMIT")
    most = MOST_REGISTRATIONS_PER_DAY
    with (
        running_service(url, folder, default_device_limit=2, max_registrations_per_day=most) as service,
        service.client() as client,
    ):
        yield Home(client, settings, engine)
    engine.dispose()


@pytest.fixture(scope="module", params=["server", "embedded"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("home")
    if request.param == "embedded":
        with served(f"sqlite:///{folder}/cupo.db", folder) as home:
            yield home
        return
    with (
        migrated_database(request.getfixturevalue("server"), "cupo_test_life") as url,
        served(url, folder) as home,
    ):
        yield home


def test_a_device_lives_through_everything_that_can_happen_to_it(home: Home) -> None:
    api, user, friend = home.api, home.new_user(), home.new_user()
    device = register(api, user, device_id="a", name="𝌆", lease_seconds=600).json()["device"]
    changed = api.patch(address(user, "a"), json={"name": None, "metadata": {"n": 1.0}})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    beat = api.post(address(user, "a", "/heartbeat")).json()
    assert beat["expires_at"] > device["expires_at"]
    moved = api.post(address(user, "a", "/transfer"), json={"to_user_id": str(friend)})
    assert moved.json() == {
        "device": beat | {"user_id": str(friend)},
        "quota": {"limit": 2, "used": 1, "remaining": 1, "source": "default"},
    }
    back = api.post(address(friend, "a", "/transfer"), json={"to_user_id": str(user)})
    assert back.json()["device"] == beat

    home.end_leases()
    problem_of(api.get(address(user, "a")), 404, "device_not_found")
    problem_of(api.post(address(user, "a", "/heartbeat")), 410, "device_expired")
    assert home.sweep() == Swept(devices=1, answers=0)
    problem_of(api.post(address(user, "a", "/heartbeat")), 410, "device_expired")
    assert register(api, user, device_id="a").status_code == 201

    stale = api.delete(address(user, "a"), headers={"If-Match": '"2"'})
    problem_of(stale, 412, "precondition_failed")
    assert api.delete(address(user, "a"), params={"block": True, "reason": "携帯"}).status_code == 204
    problem_of(register(api, user, device_id="a"), 403, "device_blocked")
    assert api.post(address(user, "a", "/allow")).status_code == 204
    assert register(api, user, device_id="a").status_code == 201
    assert [kind for kind, _ in happened(api, user)] == [
        *("device.registered", "device.updated", "device.transferred", "device.transferred"),
        *("device.expired", "device.registered", "device.revoked", "device.blocked", "device.allowed"),
        "device.registered",
    ]
    assert [event["reason"] for event in trail(api, user)[-4:]] == ["携帯", "携帯", None, None]


def test_a_full_account_has_its_ways_out(home: Home) -> None:
    api, user = home.api, home.new_user()
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id)
    assert problem_of(register(api, user, device_id="c"), 409, "device_limit_reached")["need_to_remove"] == 1
    assert register(api, user, device_id="c", replace_device_id="a").status_code == 201
    evicting = register(api, user, device_id="d", on_limit="evict_oldest")
    assert [device["device_id"] for device in evicting.json()["evicted"]] == ["b"]
    api.post(address(user, "c", "/heartbeat"))
    evicting = register(api, user, device_id="e", on_limit="evict_least_recently_seen")
    assert [device["device_id"] for device in evicting.json()["evicted"]] == ["d"]
    assert listed(api, user) == ["c", "e"]

    set_limit(api, user, 3)
    register(api, user, device_id="f", lease_seconds=60)
    home.end_leases()
    assert register(api, user, device_id="g").status_code == 201, "in the slot of what has expired"
    lowered = api.put(f"/v1/users/{user}/quota", json={"limit": 0}, headers={"If-Match": '"1"'})
    assert lowered.json() == {"limit": 0, "used": 3, "remaining": 0, "source": "override"}
    full = problem_of(register(api, user, device_id="h"), 409, "device_limit_reached")
    assert full["need_to_remove"] is None
    assert api.delete(f"/v1/users/{user}/devices").json() == {"revoked": 3}
    assert api.delete(f"/v1/users/{user}/quota").headers["etag"] == '"3"'
    assert quota_of(api, user) == {"limit": 2, "used": 0, "remaining": 2, "source": "default"}


def test_a_key_has_one_effect_until_its_answer_is_too_old(home: Home) -> None:
    api, user = home.api, home.new_user()

    def post(**body: object) -> httpx.Response:
        return api.post(f"/v1/users/{user}/devices", json=body, headers={"Idempotency-Key": "k"})

    first, again = post(name="𝌆"), post(name="𝌆")
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    problem_of(post(name="other"), 422, "idempotency_key_reused")
    assert home.execute("UPDATE idempotency_keys SET answered_at = '2026-01-02 03:04:05.678901'") == 1
    assert home.sweep() == Swept(devices=0, answers=1)
    assert post(name="other").status_code == 201
    assert quota_of(api, user)["used"] == 2


def test_a_trail_is_read_in_pages(home: Home) -> None:
    api, user = home.api, home.new_user()
    for _ in range(3):
        register(api, user, device_id="a")
        api.delete(address(user, "a"))
    pages, query = [], {"limit": "4"}
    while "cursor" not in query or query["cursor"]:
        page = api.get(f"/v1/users/{user}/events", params=query).json()
        pages.append([event["type"] for event in page["items"]])
        query["cursor"] = page["next_cursor"]
    assert pages == [["device.revoked", "device.registered"] * 2, ["device.revoked", "device.registered"]]


def test_who_registers_too_often_is_told_when_the_next_one_is_possible(home: Home) -> None:
    api, user = home.api, home.new_user()
    for one in range(MOST_REGISTRATIONS_PER_DAY):
        assert register(api, user, device_id=f"d-{one}", on_limit="evict_oldest").status_code == 201
    refused = register(api, user, device_id="new", on_limit="evict_oldest")
    problem_of(refused, 429, "registration_rate_exceeded")
    assert A_DAY_SECONDS - 60 <= int(refused.headers["retry-after"]) <= A_DAY_SECONDS
    known = f"d-{MOST_REGISTRATIONS_PER_DAY - 1}"
    assert register(api, user, device_id=known).status_code == 200, "a repeat is not a new one"


def test_an_erased_user_is_as_one_that_was_never_seen_but_for_one_event(home: Home) -> None:
    api, user = home.api, home.new_user()
    set_limit(api, user, 5)
    for device_id in ("a", "b"):
        register(api, user, device_id=device_id, name="Ana")
    api.delete(address(user, "a"), params={"block": True})
    answer = api.delete(f"/v1/users/{user}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-type" not in answer.headers
    (erased,) = trail(api, user)
    assert [erased[name] for name in ("type", "device_id", "reason", "data")] == [
        "user.erased",
        None,
        None,
        {},
    ]
    assert erased["request_id"] == answer.headers["x-request-id"]
    assert quota_of(api, user) == {"limit": 2, "used": 0, "remaining": 2, "source": "default"}
    assert api.delete(f"/v1/users/{user}").status_code == 204, "again, and of anybody"
    assert [kind for kind, _ in happened(api, user)] == ["user.erased"]
    assert register(api, user, device_id="a").status_code == 201, "not blocked any more"


def test_no_instant_of_the_client_changes_anything(home: Home) -> None:
    api, user = home.api, home.new_user()
    for hours in (-2, 2):
        then = datetime.now(UTC) + timedelta(hours=hours)
        headers = {
            "Date": format_datetime(then, usegmt=True),
            "If-Unmodified-Since": format_datetime(then, usegmt=True),
        }
        device = api.post(
            f"/v1/users/{user}/devices", json={"device_id": "a", "lease_seconds": 60}, headers=headers
        ).json()["device"]
        for name, seconds in (("registered_at", 0), ("last_seen_at", 0), ("expires_at", 60)):
            expected = datetime.now(UTC) + timedelta(seconds=seconds)
            assert abs(datetime.fromisoformat(device[name]) - expected) < timedelta(seconds=30), name
        assert api.post(address(user, "a", "/heartbeat"), headers=headers).status_code == 200
        assert api.delete(address(user, "a"), headers=headers).status_code == 204
