"""Each strategy for itself: what its file says, what it tells one caller, which orders are forced on it."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

from loadtest.compare.calls import call
from loadtest.compare.database import Address, lab_database, lacks, lay_tables, seed
from loadtest.compare.interleavings import INTERLEAVINGS, Interleaving, Verdict
from loadtest.compare.measure import in_words
from loadtest.compare.redis_server import PrivateRedis, private_redis, redis_client
from loadtest.compare.scene import Scene
from loadtest.strategies import Caller, LockBusy, LockLost, Outcome, Phase, Strategy
from loadtest.strategies.catalogue import STRATEGIES
from loadtest.strategies.redis_lease import LEASE_MILLISECONDS, Lease
from tests.programs import REDIS, program
from tests.servers import Server

LAB = "cupo_test_strategies"
USER = 1
EXPECTED = {
    "no_lock": "breaks",
    "lock_row_never_made": "breaks: fresh",
    "repeatable_read_late_lock": "breaks",
    "myisam_lock_row": "breaks",
    "redis_lock": "holds",
    "redis_lock_paused": "breaks",
    "redis_lock_fenced": "holds",
    "redis_lock_fenced_paused": "holds",
    "serializable": "holds",
    "users_row": "holds",
    "conditional_counter": "holds",
    "insert_ignore_lock_row": "holds",
    "lock_row": "holds",
}

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)


@pytest.fixture(scope="module")
def redis_server() -> Iterator[PrivateRedis]:
    program(REDIS)
    with private_redis() as server:
        assert server is not None
        yield server


@pytest.fixture(scope="module")
def address(server: Server) -> Address:
    return Address.of(server.url("", server.admin_user), LAB)


@pytest.fixture(scope="module")
def scene(address: Address, redis_server: PrivateRedis) -> Iterator[Scene]:
    with lab_database(address, callers=1) as database, ExitStack() as stack:
        yield Scene(address, database, redis_server.url, redis_server, stack)


def test_every_strategy_of_the_table_is_there_with_its_expectation() -> None:
    assert {strategy.name: in_words(strategy.breaks) for strategy in STRATEGIES} == EXPECTED


@each_strategy
def test_a_strategy_says_what_people_do_and_why_it_holds_or_breaks(strategy: Strategy) -> None:
    assert strategy.what.endswith(".")
    assert 2 <= strategy.why.count(". ") + 1 <= 3
    source = Path(inspect.getfile(strategy.register))
    assert len(source.read_text(encoding="utf-8").splitlines()) <= 60


def test_no_two_strategies_share_a_table() -> None:
    tables: dict[str, str] = {}
    for strategy in STRATEGIES:
        for ddl in (strategy.devices.ddl, *strategy.tables):
            module = sys.modules[strategy.register.__module__].__name__
            assert tables.setdefault(ddl.split()[2], module) == module


@pytest.mark.locking
@pytest.mark.parametrize("phase", list(Phase))
@each_strategy
def test_one_caller_after_another_is_answered_right_by_every_strategy(
    strategy: Strategy, phase: Phase, scene: Scene
) -> None:
    missing = lacks(scene.database, strategy)
    if missing:
        pytest.skip(missing)
    scene.prepare(strategy)
    lay_tables(scene.database, strategy)
    seed(scene.database, strategy, phase, range(USER, USER + 1))
    with closing(scene.address.connect(strategy.isolation)) as connection:
        caller = Caller(connection, scene.redis)
        answers = [
            call(strategy, caller, USER, device_id, 2).outcome for device_id in ("a", "a", "b", "c", "b")
        ]
    assert answers == [Outcome.REGISTERED, Outcome.KNOWN, Outcome.REGISTERED, Outcome.REFUSED, Outcome.KNOWN]
    assert scene.devices() == 2


@pytest.mark.locking
@pytest.mark.parametrize(
    "interleaving", INTERLEAVINGS, ids=lambda played: f"{played.name}, {played.strategy.name}"
)
def test_an_interleaving_ends_as_expected(interleaving: Interleaving, scene: Scene) -> None:
    shown = interleaving.run(scene)
    assert (shown.observed, shown.surprise) == (interleaving.expected, ""), shown.seen


def test_an_interleaving_that_ends_otherwise_is_a_surprise(scene: Scene) -> None:
    paused = INTERLEAVINGS[0]
    wrong = Interleaving(paused.name, paused.strategy, Verdict.HOLDS, paused.play)
    assert "expected holds, observed breaks" in wrong.run(scene).surprise


def test_interleavings_need_no_redis_to_say_that_there_is_none(scene: Scene) -> None:
    without = Scene(scene.address, scene.database, None, None, scene.closing)
    seen = {shown.strategy: (shown.observed, shown.seen) for shown in (i.run(without) for i in INTERLEAVINGS)}
    assert seen["redis_lock"] == (None, "no Redis here")
    assert seen["lock_row"][0] is Verdict.HOLDS


def test_only_the_owner_renews_and_releases_a_lease(redis_server: PrivateRedis) -> None:
    with redis_client(redis_server.url) as redis:
        old = Lease.take(redis, "cupo_lab:owner", 0)
        with pytest.raises(LockBusy):
            Lease.take(redis, "cupo_lab:owner", 0)
        redis.pexpire(old.key, 0)
        new = Lease.take(redis, "cupo_lab:owner", 0)
        with pytest.raises(LockLost):
            old.renew()
        assert not old.release()
        redis.pexpire(new.key, LEASE_MILLISECONDS // 2)
        new.renew()
        assert redis.pttl(new.key) > LEASE_MILLISECONDS // 2
        assert new.release()
        assert not redis.exists(new.key)


def test_a_fencing_number_rises_with_every_holder(scene: Scene) -> None:
    fenced = next(strategy for strategy in STRATEGIES if strategy.name == "redis_lock_fenced")
    scene.prepare(fenced)
    numbers: list[int] = []
    for device_id in ("a", "b", "c"):
        assert scene.told(scene.caller(), device_id) in ("registered", "refused")
        with scene.database.cursor() as cursor:
            cursor.execute("SELECT fence FROM fenced_fences WHERE user_id = %s", (USER,))
            numbers.extend(row[0] for row in cursor.fetchall())
    assert all(later > earlier for earlier, later in pairwise(numbers))
