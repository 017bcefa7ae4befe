"""API keys as this process knows them: read from the database at most 10 seconds ago."""

import asyncio
import hmac
import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from app.auth.scopes import Scope
from app.db import Database, Tx
from app.errors import DatabaseUnavailable, Unavailable
from app.keys import queries
from app.keys.queries import StoredKey
from app.recording import on_behalf_of

MOST_SECONDS_OLD = 10
MOST_KEYS = 10_000
USE_NOTED_EVERY_SECONDS = 60


@dataclass(slots=True)
class KnownKey:
    """A key that is in the database. Moments are of this process's monotonic clock."""

    id: str
    digest: bytes
    scopes: frozenset[Scope]
    stale_at: float
    ends_at: float
    note_use_at: float

    @property
    def actor(self) -> str:
        return f"api_key:{self.id}"


Lookup = asyncio.Task[dict[str, KnownKey]]


class KnownKeys:
    """Tells keys that count, without a statement for those that were looked up in the last 10 seconds.

    So long, and no longer, may a key outlive its revocation by another process: the time counts from before
    its row was read. This process's own revocations count at once, by `refuse`, and a key's expiry by the
    clock.

    One lookup runs at a time, and the next one takes all ids that were asked for meanwhile. So made-up keys,
    however many arrive, take one connection; and as ids that are in no row are not kept, they push out none.
    """

    def __init__(self, db: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._known: dict[str, KnownKey] = {}  # the one that was read longest ago first
        self._refused: set[str] = set()  # grows by an id for each key that this process revokes
        self._one_at_a_time = asyncio.Lock()
        self._lookups: dict[str, Lookup] = {}  # of each id that is being looked up
        self._next: tuple[set[str], Lookup] | None = None  # waits for the one that runs; more may join
        self._used: set[str] = set()
        self._noting: asyncio.Task[None] | None = None

    async def find(self, key_id: str, digest: bytes) -> KnownKey | None:
        """The key, if the digest is its own and it counts now.

        Whether an id is known shows in the duration; ids are no secrets. Raises Unavailable (503) where the
        database has to be asked and does not answer.
        """
        key = self._known.get(key_id)
        if key is None or key.stale_at <= self._clock():
            key = await self._look_up(key_id)
        if key is None or not hmac.compare_digest(digest, key.digest):
            return None
        now = self._clock()
        if key.stale_at <= now:
            raise DatabaseUnavailable  # its answer was on the way for longer than it may be believed
        if key.ends_at <= now or key_id in self._refused:
            return None
        if key.note_use_at <= now:
            self._note_use(key, now)
        return key

    def refuse(self, key_id: str) -> None:
        """Let the key, which was revoked, count no more in this process.

        For good, not by forgetting it: a lookup that began before the revocation would bring it back.
        """
        self._refused.add(key_id)

    async def close(self) -> None:
        """Let what is under way end: it has a connection."""
        under_way = {*self._lookups.values(), *([self._noting] if self._noting else [])}
        if under_way:
            await asyncio.wait(under_way)

    async def _look_up(self, key_id: str) -> KnownKey | None:
        lookup = self._lookups.get(key_id) or self._join_next_lookup(key_id)
        found = await asyncio.shield(lookup)  # one caller who hangs up must not end it for the others
        return found.get(key_id)

    def _join_next_lookup(self, key_id: str) -> Lookup:
        if self._next is None:
            ids: set[str] = set()
            lookup = asyncio.create_task(self._run_lookup(ids))
            lookup.add_done_callback(_retrieve)
            self._next = ids, lookup
        ids, lookup = self._next
        ids.add(key_id)
        self._lookups[key_id] = lookup
        return lookup

    async def _run_lookup(self, ids: set[str]) -> dict[str, KnownKey]:
        try:
            async with self._one_at_a_time:
                self._next = None
                with on_behalf_of():  # of no call: the first of many has begun it
                    read_at, rows = await self._db.submit(self._read, ids, read_only=True)
        finally:
            for key_id in ids:
                del self._lookups[key_id]
        found = {row.id: _known(row, read_at) for row in rows}
        for key_id in ids:
            self._known.pop(key_id, None)
        self._known.update(found)
        for key_id in list(self._known)[: max(0, len(self._known) - MOST_KEYS)]:
            del self._known[key_id]
        return found

    def _read(self, tx: Tx, ids: Collection[str]) -> tuple[float, list[StoredKey]]:
        return self._clock(), queries.stored_keys(tx, ids)

    def _note_use(self, key: KnownKey, now: float) -> None:
        """Write `last_used_at` soon, in a transaction of its own that no caller waits for."""
        key.note_use_at = now + USE_NOTED_EVERY_SECONDS
        self._used.add(key.id)
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note_uses())

    async def _note_uses(self) -> None:
        while self._used:
            used, self._used = self._used, set()
            # Where it cannot be, the next lookup finds the old instant, and has it written.
            with on_behalf_of(), suppress(Unavailable):
                await self._db.submit(queries.note_uses, sorted(used), USE_NOTED_EVERY_SECONDS)


def _retrieve(lookup: Lookup) -> None:
    """Its error is for those who wait, all of whom may have hung up; asyncio would log it then."""
    if not lookup.cancelled():
        lookup.exception()


def _known(row: StoredKey, read_at: float) -> KnownKey:
    left_seconds = math.inf if row.expires_at is None else (row.expires_at - row.at).total_seconds()
    unused_seconds = math.inf if row.last_used_at is None else (row.at - row.last_used_at).total_seconds()
    return KnownKey(
        id=row.id,
        digest=row.digest,
        scopes=row.scopes,
        stale_at=read_at + MOST_SECONDS_OLD,
        ends_at=-math.inf if row.is_revoked else read_at + left_seconds,
        note_use_at=read_at + USE_NOTED_EVERY_SECONDS - unused_seconds,
    )
