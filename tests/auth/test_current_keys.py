"""The key set over time: who reads it, how often, and what holds meanwhile. A real server publishes it."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.auth.errors import TokenKeysUnavailable, UnknownCredential
from app.auth.jwks import KeySet
from app.auth.key_sources import Unreadable, key_source
from app.auth.user_tokens import OLDEST_SECONDS, UNKNOWN_KEY_SECONDS, CurrentKeys, UserTokens
from app.settings import load_settings
from tests.auth.issuer import AUDIENCE, ISSUER, RULES, Publisher, SigningKey, key_set, published

OLD, NEW = SigningKey("ES256", kid="old"), SigningKey("ES256", kid="new")
PATIENCE_SECONDS = 30


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


def tokens_of(publisher: Publisher, clock: Clock, **intervals: float) -> UserTokens:
    source = key_source(load_settings(jwks_url=publisher.url, jwt_issuer=ISSUER, jwt_audience=AUDIENCE))
    assert source is not None
    return UserTokens(CurrentKeys(source[1], clock, **intervals), RULES)


def run(story: Callable[..., Coroutine[Any, Any, None]]) -> None:
    """`story` with a publisher of the old key, the clock, and tokens whose keys have been read once."""

    async def whole() -> None:
        clock = Clock()
        with published(key_set(OLD)) as publisher:
            tokens = tokens_of(publisher, clock)
            assert await tokens.keys.refresh()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await story(publisher, clock, tokens)

    asyncio.run(whole())


async def asked(publisher: Publisher) -> None:
    """Once more, and the request is there."""
    assert await asyncio.to_thread(publisher.has_been_asked.acquire, timeout=PATIENCE_SECONDS)


def test_a_new_key_is_fetched_when_it_is_first_met_and_no_token_of_the_old_one_fetches_any() -> None:
    async def story(publisher: Publisher, _: Clock, tokens: UserTokens) -> None:
        publisher.document = key_set(OLD, NEW)
        assert await tokens.user_of(OLD.token()) == 42
        assert publisher.asked == 1
        assert await tokens.user_of(NEW.token()) == 42
        assert await tokens.user_of(NEW.token(sub="43")) == 43
        assert publisher.asked == 2

    run(story)


def test_made_up_kids_have_the_set_read_once_a_minute() -> None:
    async def story(publisher: Publisher, clock: Clock, tokens: UserTokens) -> None:
        for number in range(20):
            with pytest.raises(UnknownCredential):
                await tokens.user_of(NEW.token(header={"kid": f"made up {number}"}))
            clock.seconds += (UNKNOWN_KEY_SECONDS - 1) / 20
        assert publisher.asked == 2
        clock.seconds += 2
        publisher.document = key_set(NEW)
        assert await tokens.user_of(NEW.token()) == 42
        assert publisher.asked == 3

    run(story)


def test_what_is_no_token_of_an_allowed_algorithm_has_nothing_read() -> None:
    async def story(publisher: Publisher, _: Clock, tokens: UserTokens) -> None:
        for header in ({"alg": "none"}, {"alg": "HS256"}, {"alg": "PS256"}, {"crit": ["x"]}, {"kid": 7}):
            with pytest.raises(UnknownCredential):
                await tokens.user_of(NEW.token(header=header))
        assert publisher.asked == 1

    run(story)


def test_many_tokens_of_a_new_key_at_once_wait_for_one_reading_and_nobody_else_does() -> None:
    async def story(publisher: Publisher, _: Clock, tokens: UserTokens) -> None:
        assert publisher.has_been_asked.acquire(blocking=False)
        publisher.document = key_set(OLD, NEW)
        publisher.may_answer.clear()
        waiting = [asyncio.create_task(tokens.user_of(NEW.token())) for _ in range(50)]
        await asked(publisher)
        assert await tokens.user_of(OLD.token()) == 42
        waiting.append(asyncio.create_task(tokens.user_of(NEW.token(sub="43"))))
        assert not any(task.done() for task in waiting)
        publisher.may_answer.set()
        assert await asyncio.gather(*waiting) == [42] * 50 + [43]
        assert publisher.asked == 2

    run(story)


def test_a_caller_who_leaves_ends_the_reading_for_nobody() -> None:
    async def story(publisher: Publisher, _: Clock, tokens: UserTokens) -> None:
        assert publisher.has_been_asked.acquire(blocking=False)
        publisher.document = key_set(NEW)
        publisher.may_answer.clear()
        leaver, other = (asyncio.create_task(tokens.user_of(NEW.token())) for _ in range(2))
        await asked(publisher)
        leaver.cancel()
        publisher.may_answer.set()
        assert await other == 42
        assert publisher.asked == 2

    run(story)


@pytest.mark.parametrize("trouble", ["status", "document", "size"])
def test_the_old_keys_serve_on_while_there_are_no_new_ones_but_not_for_ever(
    trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(publisher: Publisher, clock: Clock, tokens: UserTokens) -> None:
        match trouble:
            case "status":
                publisher.status = 500
            case "document":
                publisher.document = b"<html>"
            case "size":
                publisher.document = b" " * 300_000 + key_set(OLD)
        clock.seconds += OLDEST_SECONDS - 1
        assert not await tokens.keys.refresh()
        assert await tokens.user_of(OLD.token()) == 42
        assert [(record.levelname, publisher.url in record.message) for record in caplog.records] == [
            ("WARNING", True)
        ]
        clock.seconds += 2
        assert not await tokens.keys.refresh()
        with pytest.raises(TokenKeysUnavailable):
            await tokens.user_of(OLD.token())
        assert caplog.records[-1].levelname == "ERROR"
        publisher.status, publisher.document = 200, key_set(OLD)
        assert await tokens.keys.refresh()
        assert await tokens.user_of(OLD.token()) == 42

    caplog.set_level(logging.WARNING)
    run(story)


def test_nothing_listens_and_the_old_keys_serve_on() -> None:
    async def story() -> None:
        with published(key_set(OLD)) as publisher:
            tokens = tokens_of(publisher, Clock())
            assert await tokens.keys.refresh()
        assert not await tokens.keys.refresh()
        assert await tokens.user_of(OLD.token()) == 42
        with pytest.raises(UnknownCredential):
            await tokens.user_of(NEW.token())

    asyncio.run(story())


def test_without_any_keys_yet_a_call_waits_for_the_first_reading_and_is_told_when_it_fails() -> None:
    async def story() -> None:
        with published(key_set(OLD)) as publisher:
            publisher.status = 404
            tokens = tokens_of(publisher, Clock())
            with pytest.raises(TokenKeysUnavailable):
                await tokens.user_of(OLD.token())
            async with tokens.keys.kept_fresh():
                await asked(publisher)
                with pytest.raises(TokenKeysUnavailable):
                    await tokens.user_of(OLD.token())
            publisher.status = 200
            publisher.may_answer.clear()
            async with tokens.keys.kept_fresh():
                await asked(publisher)
                early = asyncio.create_task(tokens.user_of(OLD.token()))
                publisher.may_answer.set()
                assert await early == 42

    asyncio.run(story())


def test_a_key_that_is_withdrawn_ends_with_the_next_reading() -> None:
    async def story() -> None:
        with published(key_set(OLD, NEW)) as publisher:
            tokens = tokens_of(publisher, Clock(), refresh_seconds=0.01)
            async with tokens.keys.kept_fresh():
                await asked(publisher)
                assert await tokens.user_of(OLD.token()) == 42
                publisher.document = key_set(NEW)
                for _ in range(3):  # the last but one has been taken by then
                    await asked(publisher)
                with pytest.raises(UnknownCredential):
                    await tokens.user_of(OLD.token())
                assert await tokens.user_of(NEW.token()) == 42

    asyncio.run(story())


def test_after_a_failure_the_set_is_read_again_sooner() -> None:
    async def story() -> None:
        with published(b"") as publisher:
            tokens = tokens_of(publisher, Clock(), refresh_seconds=3600, retry_seconds=0.01)
            async with tokens.keys.kept_fresh():
                await asked(publisher)
                publisher.document = key_set(OLD)
                for _ in range(3):
                    if await _is_known(tokens):
                        return
                    await asked(publisher)
                assert await _is_known(tokens)

    asyncio.run(story())


async def _is_known(tokens: UserTokens) -> bool:
    try:
        return await tokens.user_of(OLD.token()) == 42
    except TokenKeysUnavailable:
        return False


def test_keys_that_are_passed_over_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(publisher: Publisher, _: Clock, tokens: UserTokens) -> None:
        publisher.document = key_set(OLD, {"kty": "oct", "k": "c2VjcmV0"})
        for _number in range(3):
            assert await tokens.keys.refresh()
        assert [record.message for record in caplog.records] == [
            "Of the keys for user tokens, keys[1] is of no kind for ES256, EdDSA, RS256: passed over"
        ]
        assert await tokens.user_of(OLD.token()) == 42

    run(story)


def test_a_reading_that_does_not_end_is_given_up() -> None:
    """The system may take its time to look a name up, which no time-out of a connection bounds."""

    async def story() -> None:
        may_end = threading.Event()

        def read() -> KeySet:
            may_end.wait(PATIENCE_SECONDS)
            raise Unreadable

        try:
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                assert not await CurrentKeys(read, give_up_seconds=0.05).refresh()
        finally:
            may_end.set()

    asyncio.run(story())


def test_a_fault_in_reading_is_told_when_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> KeySet:
        raise LookupError("a fault")

    async def story() -> None:
        told = asyncio.Event()
        monkeypatch.setattr("app.auth.user_tokens.log.error", lambda *_, **__: told.set())
        with pytest.raises(LookupError, match="a fault"):
            async with CurrentKeys(read).kept_fresh(), asyncio.timeout(PATIENCE_SECONDS):
                await told.wait()
        assert told.is_set()

    asyncio.run(story())
