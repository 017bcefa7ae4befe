"""User tokens as the service takes them: the key set that is current, and the user whom a token names."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from anyio import to_thread

from app.auth.errors import TokenExpired, TokenKeysUnavailable, UnknownCredential
from app.auth.jwks import KeySet
from app.auth.jwt import Expired, NoKeyFits, Refused, Rules, VerifiedUser, verified_user
from app.auth.key_sources import READ_SECONDS, ReadKeys, Unreadable, key_source
from app.settings import BadSettings, Settings

log = logging.getLogger(__name__)

REFRESH_SECONDS = 300.0  # a key that is withdrawn is good for this long
RETRY_SECONDS = 30.0  # after a reading that failed
UNKNOWN_KEY_SECONDS = 60.0  # anybody can make up a kid, and would have the issuer called each time
MOST_VERIFIED = 10_000  # tokens
OLDEST_SECONDS = 4 * 3600.0  # an outage of the issuer outlasts no withdrawal by more


class CurrentKeys:
    """The key set, read anew every five minutes in a thread of its own, so that no call waits for it.

    Where a reading fails, the keys of the last one serve on, for four hours at most.
    """

    def __init__(
        self,
        read: ReadKeys,
        clock: Callable[[], float] = time.monotonic,
        refresh_seconds: float = REFRESH_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        give_up_seconds: float = READ_SECONDS + 1,
    ) -> None:
        self._read = read
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._retry_seconds = retry_seconds
        self._give_up_seconds = give_up_seconds
        self._keys: KeySet | None = None
        self._read_at = 0.0
        self._searched_at: float | None = None
        self._passed_over: tuple[str, ...] = ()
        self._reading: asyncio.Task[bool] | None = None

    async def current(self) -> KeySet:
        """Raises TokenKeysUnavailable (503)."""
        if self._keys is None and self._reading is not None:
            await self.refresh()
        if self._keys is None or self._clock() - self._read_at > OLDEST_SECONDS:
            raise TokenKeysUnavailable
        return self._keys

    async def newer_than(self, keys: KeySet) -> KeySet | None:
        """The set as it is now, for a token that no key of `keys` fits; None if it was read just now."""
        if self._keys is keys and self._may_search():
            await self.refresh()
        return None if self._keys is keys else self._keys

    def _may_search(self) -> bool:
        if self._reading is not None:
            return True  # one more who waits for it
        now = self._clock()
        if self._searched_at is not None and now - self._searched_at < UNKNOWN_KEY_SECONDS:
            return False
        self._searched_at = now
        return True

    async def refresh(self) -> bool:
        """Have the set read, once for all who ask meanwhile: whether it could be."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_anew())
            self._reading.add_done_callback(self._forget)
        return await asyncio.shield(self._reading)  # a caller who leaves must not end it for the others

    def _forget(self, _: object) -> None:
        self._reading = None

    async def _read_anew(self) -> bool:
        try:
            # The reader has bounds of its own, but the system may take longer to look a name up.
            async with asyncio.timeout(self._give_up_seconds):
                keys = await to_thread.run_sync(self._read, abandon_on_cancel=True)
        except (Unreadable, TimeoutError) as reason:
            self._complain(reason)
            return False
        self.take(keys)
        return True

    def take(self, keys: KeySet) -> None:
        if keys.passed_over != self._passed_over:
            self._passed_over = keys.passed_over
            for key in keys.passed_over:
                log.warning("Of the keys for user tokens, %s: passed over", key)
        if not keys.keys:
            log.warning("There is no key for user tokens: none will be accepted")
        self._keys, self._read_at = keys, self._clock()

    def _complain(self, reason: Exception) -> None:
        age = self._clock() - self._read_at
        if self._keys is None or age > OLDEST_SECONDS:
            log.error("No keys for user tokens, which are answered by 503: %s", reason or "no answer in time")
        else:
            log.warning(
                "The keys for user tokens, read %.0f s ago, serve on until %.0f s: %s",
                age,
                OLDEST_SECONDS,
                reason or "no answer in time",
            )

    @asynccontextmanager
    async def kept_fresh(self) -> AsyncIterator[None]:
        """Meanwhile the set is read again and again."""
        loop = asyncio.create_task(self._keep_fresh())
        loop.add_done_callback(_tell_of_a_fault)
        try:
            yield
        finally:
            tasks = [task for task in (loop, self._reading) if task is not None]
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)

    async def _keep_fresh(self) -> None:
        while True:
            could = await self.refresh()
            await asyncio.sleep(self._refresh_seconds if could else self._retry_seconds)


def _tell_of_a_fault(loop: asyncio.Task[None]) -> None:
    """Else nobody would hear of it before the keys are four hours old."""
    if not loop.cancelled() and loop.exception() is not None:
        log.error("The keys for user tokens are read no more, by a fault", exc_info=loop.exception())


class UserTokens:
    """What the service knows about its users' tokens.

    An app sends one token with many calls. It is verified once: what was found is kept by the digest of the
    whole token, for as long as the token lasts and the key set stays the one that it was verified by.
    """

    def __init__(self, keys: CurrentKeys, rules: Rules) -> None:
        self.keys = keys
        self._rules = rules
        self._verified: dict[bytes, VerifiedUser] = {}  # the one that was verified longest ago first
        self._verified_by: KeySet | None = None

    async def user_of(self, token: str) -> int:
        """The user whom the token names.

        Raises UnknownCredential (401), TokenExpired (401), TokenKeysUnavailable (503).
        """
        keys = await self.keys.current()
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._verified.get(digest) if self._verified_by is keys else None
        if known is not None and time.time() < known.ends_at:
            return known.id
        try:
            try:
                user = verified_user(token, keys, self._rules, time.time())
            except NoKeyFits:
                newer = await self.keys.newer_than(keys)
                if newer is None:
                    raise
                keys, user = newer, verified_user(token, newer, self._rules, time.time())
        except Expired:
            raise TokenExpired from None
        except Refused:
            raise UnknownCredential from None
        self._keep(digest, user, keys)
        return user.id

    def _keep(self, digest: bytes, user: VerifiedUser, keys: KeySet) -> None:
        if self._verified_by is not keys:
            self._verified, self._verified_by = {}, keys
        self._verified[digest] = user
        if len(self._verified) > MOST_VERIFIED:
            del self._verified[next(iter(self._verified))]


@asynccontextmanager
async def keys_kept_fresh(tokens: UserTokens | None) -> AsyncIterator[None]:
    """Meanwhile their key set is read again and again, if users have tokens."""
    if tokens is None:
        yield
    else:
        async with tokens.keys.kept_fresh():
            yield


def user_tokens(settings: Settings) -> UserTokens | None:
    """As set; None where users have none. Raises BadSettings where keys on this machine are no good.

    An address is not asked for them yet: the service starts without the issuer, and answers keys meanwhile.
    """
    source = key_source(settings)
    if source is None or settings.jwt_issuer is None or settings.jwt_audience is None:
        return None
    name, read = source
    keys = CurrentKeys(read)
    if settings.jwks_url is None:
        try:
            found = read()
        except Unreadable as reason:
            raise BadSettings(f"{name}: {reason}") from None
        if not found.keys:
            raise BadSettings("\n".join(f"{name}: {key}" for key in found.passed_over or ["has no keys"]))
        keys.take(found)
    rules = Rules(
        settings.jwt_issuer, settings.jwt_audience, settings.jwt_user_claim, settings.jwt_leeway_seconds
    )
    return UserTokens(keys, rules)
