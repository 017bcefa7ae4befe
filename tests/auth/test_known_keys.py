"""What a process knows of API keys, and for how long: on a real database, by a clock that the tests set."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import Engine, text

from app.auth import known_keys
from app.auth.known_keys import KnownKey, KnownKeys
from app.db import Database
from app.errors import DatabaseUnavailable
from app.keys.token import digest_of, new_token
from app.settings import load_settings
from tests.auth.keys import Key, last_used, put_key, revoke_elsewhere
from tests.proxy import Fate, Proxy, proxied
from tests.services import ROOT_KEY
from tests.use_cases import list_devices

pytestmark = pytest.mark.locking

PATIENCE_SECONDS = 30


@dataclass
class Process:
    """A process that knows keys, its way to the database, and its clock, which stands still by itself."""

    proxy: Proxy
    db: Database
    now: float = 1000.0
    keys: KnownKeys = field(init=False)

    def __post_init__(self) -> None:
        self.keys = KnownKeys(self.db, clock=lambda: self.now)

    async def find(self, key: Key) -> KnownKey | None:
        return await self.keys.find(key.id, digest_of(key.token))

    def sent(self, word: str) -> int:
        return sum(word in statement for statement in self.proxy.statements)


@dataclass
class Gate:
    """Holds the first statement that has `word` before it reaches the database, until it is opened."""

    proxy: Proxy
    word: str
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.proxy.fate = self._hold

    def _hold(self, statement: str) -> Fate:
        if self.word in statement:
            self.reached.set()
            assert self.opened.wait(PATIENCE_SECONDS)
        return Fate.PASS

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE_SECONDS)


@pytest.fixture
def process(database_url: str) -> Iterator[Process]:
    with proxied(database_url) as (proxy, url):
        settings = load_settings(
            database_url=url, root_key=ROOT_KEY, database_pool_size=2, lock_budget_seconds=2
        )
        db = Database(settings)
        db.open_connections()
        proxy.statements.clear()
        yield Process(proxy, db)
        db.close()


def run(process: Process, story: Callable[[], Awaitable[None]]) -> None:
    """Let it happen; whatever went wrong in the background with nobody to see it counts as well."""
    unseen: list[object] = []

    async def told() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
        try:
            await asyncio.wait_for(story(), PATIENCE_SECONDS)
        finally:
            await process.keys.close()

    asyncio.run(told())
    gc.collect()
    assert unseen == []


def test_a_known_key_costs_no_statement_for_10_seconds(process: Process, auditor: Engine) -> None:
    key = put_key(auditor, "devices:read devices:write")

    async def story() -> None:
        found = await process.find(key)
        assert found is not None
        assert (found.actor, sorted(found.scopes)) == (f"api_key:{key.id}", ["devices:read", "devices:write"])
        for later_seconds in (0, 5, 9.99):
            process.now = 1000 + later_seconds
            assert await process.find(key) is not None
        assert process.sent("SELECT") == 1
        process.now = 1010
        assert await process.find(key) is not None
        assert process.sent("SELECT") == 2

    run(process, story)


def test_a_key_that_was_revoked_elsewhere_counts_for_less_than_10_seconds_more(
    process: Process, auditor: Engine
) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        assert await process.find(key) is not None
        revoke_elsewhere(auditor, key)
        process.now += 9.99
        assert await process.find(key) is not None, "otherwise this shows nothing"
        process.now += 0.01
        for _ in range(3):
            assert await process.find(key) is None
        assert process.sent("SELECT") == 2, "that it is revoked is known as well"

    run(process, story)


def test_the_10_seconds_count_from_before_the_row_was_read(process: Process, auditor: Engine) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        gate = Gate(process.proxy, "api_keys")
        looking = asyncio.create_task(process.find(key))
        await gate.wait()
        process.now += 10
        gate.opened.set()
        with pytest.raises(DatabaseUnavailable):
            await looking
        assert await process.find(key) is not None

    run(process, story)


def test_a_key_that_this_process_revoked_stays_refused_whatever_a_lookup_under_way_has_read(
    process: Process, auditor: Engine
) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        gate = Gate(process.proxy, "COMMIT")  # of the lookup, which by then has read the row
        looking = asyncio.create_task(process.find(key))
        await gate.wait()
        revoke_elsewhere(auditor, key)
        process.keys.refuse(key.id)
        gate.opened.set()
        assert await looking is None
        assert await process.find(key) is None

    run(process, story)


def test_a_key_ends_by_the_database_s_clock_without_being_looked_up(
    process: Process, auditor: Engine
) -> None:
    key = put_key(auditor, "devices:read", expires_in_seconds=9)

    async def story() -> None:
        assert await process.find(key) is not None
        process.now += 9
        assert await process.find(key) is None
        assert process.sent("SELECT") == 1

    run(process, story)


def test_many_that_ask_for_one_key_at_once_cost_one_lookup(process: Process, auditor: Engine) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        gate = Gate(process.proxy, "api_keys")
        first = [asyncio.create_task(process.find(key)) for _ in range(50)]
        await gate.wait()
        later = [asyncio.create_task(process.find(key)) for _ in range(50)]
        await asyncio.sleep(0)
        gate.opened.set()
        assert all(await asyncio.gather(*first, *later))
        assert process.sent("SELECT") == 1

    run(process, story)


def test_a_caller_who_hangs_up_ends_the_lookup_of_no_other(process: Process, auditor: Engine) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        gate = Gate(process.proxy, "api_keys")
        one, other = (asyncio.create_task(process.find(key)) for _ in range(2))
        await gate.wait()
        one.cancel()
        gate.opened.set()
        assert await other is not None
        assert one.cancelled()

    run(process, story)


def test_a_lookup_that_fails_when_all_have_hung_up_is_nobody_s_error(
    process: Process, auditor: Engine
) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        gate = Gate(process.proxy, "api_keys")
        asking = asyncio.create_task(process.find(key))
        await gate.wait()
        process.proxy.fate = lambda _statement: Fate.CUT_BEFORE
        asking.cancel()
        gate.opened.set()
        await process.keys.close()
        assert asking.cancelled()

    run(process, story)


def test_made_up_keys_take_one_connection_however_many_arrive(
    process: Process, auditor: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_keys, "MOST_KEYS", 100)
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        assert await process.find(key) is not None
        await process.keys.close()
        process.proxy.statements.clear()
        gate = Gate(process.proxy, "FROM api_keys")
        made_up = [asyncio.create_task(process.find(_made_up())) for _ in range(10)]
        await gate.wait()
        for _ in range(1000):
            made_up.append(asyncio.create_task(process.find(_made_up())))
            await asyncio.sleep(0)
        # One of the pool's two connections waits. The other is there for callers.
        assert await process.db.submit(list_devices, 1, read_only=True)
        gate.opened.set()
        assert await asyncio.gather(*made_up) == [None] * 1010
        assert process.sent("FROM api_keys") == 2
        assert await process.find(key) is not None
        assert process.sent("FROM api_keys") == 2, "no made-up key has pushed it out"
        assert await process.find(Key(key.id, _made_up().token)) is None
        assert process.sent("FROM api_keys") == 2, "nor does a guess at its secret cost a statement"

    run(process, story)


def _made_up() -> Key:
    token = new_token()
    return Key(token.id, token.text)


def test_so_many_keys_are_known_and_no_more(
    process: Process, auditor: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_keys, "MOST_KEYS", 3)
    keys = [put_key(auditor, "devices:read") for _ in range(5)]

    async def story() -> None:
        assert all([await process.find(key) for key in keys])
        assert all([await process.find(key) for key in keys[2:]])
        assert process.sent("SELECT") == 5
        assert await process.find(keys[0]) is not None
        assert process.sent("SELECT") == 6, "it was pushed out by those that were read later"
        assert all(await asyncio.gather(*map(process.find, keys))), "more at once than are kept"

    run(process, story)


def test_while_the_database_is_away_known_keys_count_and_others_are_503(
    process: Process, auditor: Engine
) -> None:
    known, unknown = put_key(auditor, "devices:read"), put_key(auditor, "devices:read")

    async def story() -> None:
        assert await process.find(known) is not None
        await process.keys.close()
        process.proxy.fate = lambda _statement: Fate.CUT_BEFORE
        assert await process.find(known) is not None
        with pytest.raises(DatabaseUnavailable):
            await process.find(unknown)
        process.now += 10
        with pytest.raises(DatabaseUnavailable):
            await process.find(known)
        process.proxy.fate = lambda _statement: Fate.PASS
        assert await process.find(known) is not None
        assert await process.find(unknown) is not None

    run(process, story)


def test_a_use_is_written_once_a_minute(process: Process, auditor: Engine) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        for _ in range(3):
            assert await process.find(key) is not None
        await process.keys.close()
        first = last_used(auditor, key)
        assert first is not None
        for _ in range(6):
            process.now += 9
            assert await process.find(key) is not None
        await process.keys.close()
        assert process.sent("UPDATE") == 1
        _used_seconds_ago(auditor, key, 60)
        process.now += 10
        assert await process.find(key) is not None
        await process.keys.close()
        assert process.sent("UPDATE") == 2
        assert last_used(auditor, key) >= first

    run(process, story)


def _used_seconds_ago(auditor: Engine, key: Key, seconds: int) -> None:
    query = text(
        "UPDATE api_keys SET last_used_at = UTC_TIMESTAMP(6) - INTERVAL :seconds SECOND WHERE id = :id"
    )
    with auditor.connect() as connection:
        connection.execute(query, {"id": key.id, "seconds": seconds})


def test_of_two_processes_that_write_a_use_the_first_one_s_stays(process: Process, auditor: Engine) -> None:
    key, other = put_key(auditor, "devices:read"), Process(process.proxy, process.db)

    async def story() -> None:
        gate = Gate(process.proxy, "UPDATE")
        assert await process.find(key) is not None
        await gate.wait()
        assert await other.find(key) is not None, "it too finds that the key was never used"
        _used_seconds_ago(auditor, key, 30)  # as the one of them that came first would have
        written = last_used(auditor, key)
        gate.opened.set()
        await process.keys.close()
        await other.keys.close()
        assert process.sent("UPDATE") == 2
        assert last_used(auditor, key) == written

    run(process, story)


def test_nobody_waits_for_the_writing_of_a_use_nor_fails_by_it(process: Process, auditor: Engine) -> None:
    key = put_key(auditor, "devices:read")

    async def story() -> None:
        gate = Gate(process.proxy, "UPDATE")
        asking = asyncio.create_task(process.find(key))
        await gate.wait()
        assert asking.done(), "the caller has its answer while the writing is under way"
        assert await process.find(key) is not None
        process.proxy.fate = lambda _statement: Fate.CUT_BEFORE
        gate.opened.set()
        await process.keys.close()
        assert await process.find(key) is not None
        process.proxy.fate = lambda _statement: Fate.PASS
        process.now += 10
        assert await process.find(key) is not None
        await process.keys.close()
        assert last_used(auditor, key) is not None

    run(process, story)
