"""Each kind of violation, planted in tables that have no key to prevent it, is found, and the user named."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from loadtest.client import Access, Sample
from loadtest.database import Database, open_database
from loadtest.invariants import Audit, audit
from loadtest.plan import Plan, parse_mix
from loadtest.service import NoAnswer, Quota, Service
from tests.loadtest.histories import sample
from tests.servers import Server, fresh_database

PLAN = Plan(seed=1, users=10, calls=10, limit=2, mix=parse_mix("register=1"))
USER = PLAN.first_user + 3
TABLES = (
    "CREATE TABLE devices (user_id BIGINT, device_id VARCHAR(128), registered_at VARCHAR(26))",
    "CREATE TABLE device_registration_locks (user_id BIGINT)",
)
Plant = Callable[[Sequence[str]], Database]


@pytest.fixture(scope="module")
def keyless(server: Server) -> Iterator[str]:
    with fresh_database(server, "cupo_test_audit") as url:
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for table in TABLES:
                connection.exec_driver_sql(table)
        engine.dispose()
        yield url


@pytest.fixture(params=["server", "sqlite"])
def plant(request: pytest.FixtureRequest, tmp_path: Path) -> Plant:
    """Puts rows of USER into tables of their own, on the server and on SQLite."""

    def on_server(devices: Sequence[str]) -> Database:
        url = request.getfixturevalue("keyless")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM devices")
            for device in devices:
                connection.exec_driver_sql("INSERT INTO devices VALUES (%s, %s, '')", (USER, device))
        engine.dispose()
        return open_database(url)

    def on_sqlite(devices: Sequence[str]) -> Database:
        path = tmp_path / "planted.db"
        tables = sqlite3.connect(path)
        for table in TABLES:
            tables.execute(table)
        tables.executemany("INSERT INTO devices VALUES (?, ?, '')", [(USER, device) for device in devices])
        tables.commit()
        tables.close()
        return open_database(f"sqlite:///{path}")

    return on_server if request.param == "server" else on_sqlite


class SaysOfItself(Service):
    """A service that answers what it is told to."""

    def __init__(self, used: int, listed: Sequence[str]) -> None:
        super().__init__("http://service", Access(("http://service",), "key", 1))
        self._quota = Quota(2, used, max(0, 2 - used))
        self._listed = list(listed)
        self.close()

    def quota(self, user: int) -> Quota:  # noqa: ARG002 - as the real one
        return self._quota

    def devices(self, user: int) -> tuple[list[str], Quota]:  # noqa: ARG002 - as the real one
        return self._listed, self._quota


def judged(database: Database, samples: Sequence[Sample], service: Service | None = None) -> Audit:
    mine = [one._replace(user=USER) for one in samples]
    return audit(PLAN, mine, database, [service] if service else [])


def kinds(found: Audit) -> set[str]:
    assert set(found.offenders) <= {USER}
    return {violation.kind for violation in found.violations}


def test_rows_and_answers_that_agree_are_no_violation(plant: Plant) -> None:
    samples = [sample(201, 0, 1, device="a"), sample(201, 0, 1, device="b"), sample(409, 0, 1, device="c")]
    found = judged(plant(["a", "b"]), samples, SaysOfItself(2, ["a", "b"]))
    assert found == Audit(users=1, rows=2, fullest=2, uncertain=0, violations=())


def test_user_over_the_limit_is_found(plant: Plant) -> None:
    samples = [sample(201, 0, 1, device=device) for device in "abc"]
    found = judged(plant(["a", "b", "c"]), samples)
    assert [(v.kind, v.user) for v in found.violations] == [("over_limit", USER)]
    assert "3 devices in the table, the limit is 2" in found.violations[0].detail


def test_limit_broken_during_the_run_is_found_although_the_rows_are_right(plant: Plant) -> None:
    samples = [sample(201, 0, 1, device=device) for device in "abc"]
    samples.append(sample(204, 5, 6, "revoke", device="c"))
    assert kinds(judged(plant(["a", "b"]), samples)) == {"over_limit"}


def test_201_without_a_row_is_found(plant: Plant) -> None:
    assert kinds(judged(plant([]), [sample(201, 0, 1)])) == {"lost_device"}


def test_row_left_after_its_revoke_is_found(plant: Plant) -> None:
    assert kinds(judged(plant(["a"]), [sample(201, 0, 1), sample(204, 2, 3, "revoke")])) == {
        "row_after_revoke"
    }


def test_row_without_a_201_is_found(plant: Plant) -> None:
    assert kinds(judged(plant(["a"]), [sample(409, 0, 1, device="b")])) >= {"row_without_201"}


def test_row_of_a_user_who_was_never_called_for_is_found(plant: Plant) -> None:
    assert kinds(judged(plant(["a"]), [])) == {"row_without_201"}


def test_duplicate_row_is_found_where_no_key_prevents_it(plant: Plant) -> None:
    assert kinds(judged(plant(["a", "a"]), [sample(201, 0, 1)])) == {"duplicate_row"}


def test_201_twice_without_a_revoke_is_found(plant: Plant) -> None:
    assert kinds(judged(plant(["a"]), [sample(201, 0, 1), sample(201, 2, 3)])) == {"contradiction"}


def test_refusal_although_there_was_room_is_found(plant: Plant) -> None:
    samples = [sample(201, 0, 1), sample(409, 2, 3, device="b")]
    assert kinds(judged(plant(["a"]), samples)) == {"refused_with_room"}


def test_quota_that_disagrees_with_the_rows_is_found(plant: Plant) -> None:
    found = judged(plant(["a"]), [sample(201, 0, 1)], SaysOfItself(2, ["a"]))
    assert kinds(found) == {"quota_disagrees"}
    assert "used 2" in found.violations[0].detail


def test_list_that_disagrees_with_the_rows_is_found(plant: Plant) -> None:
    assert kinds(judged(plant(["a"]), [sample(201, 0, 1)], SaysOfItself(1, ["b"]))) == {"list_disagrees"}


@pytest.mark.parametrize("status", [0, 503])
@pytest.mark.parametrize("rows", [["a"], []])
def test_call_without_an_answer_explains_a_row_and_its_lack(
    plant: Plant, rows: list[str], status: int
) -> None:
    found = judged(plant(rows), [sample(status, 0, 1)])
    assert (found.violations, found.uncertain) == ((), 1)


def test_database_that_is_gone_leaves_the_audit_unfinished(tmp_path: Path) -> None:
    found = judged(open_database(f"sqlite:///{tmp_path}/gone.db"), [sample(201, 0, 1)])
    assert found.violations == ()
    assert "cannot be audited" in found.unread


def test_service_that_does_not_answer_leaves_the_audit_unfinished(plant: Plant) -> None:
    class Silent(SaysOfItself):
        def quota(self, user: int) -> Quota:  # noqa: ARG002 - as the real one
            raise NoAnswer("no answer from http://service")

    found = judged(plant(["a"]), [sample(201, 0, 1)], Silent(1, ["a"]))
    assert found.unread == "the audit could not be finished: no answer from http://service"
