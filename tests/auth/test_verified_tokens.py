"""A token is verified once, and what was found of it lasts no longer than it does."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.auth import user_tokens
from app.auth.errors import TokenExpired, UnknownCredential
from app.auth.user_tokens import UserTokens
from tests.auth.issuer import Publisher, key_set
from tests.auth.test_current_keys import NEW, OLD, Clock, run


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens that were verified, each time that they were."""
    tokens: list[str] = []
    verify: Any = user_tokens.verified_user  # type: ignore[attr-defined] # mypy: not exported from there

    def noted(token: str, *args: object) -> object:
        tokens.append(token)
        return verify(token, *args)

    monkeypatch.setattr(user_tokens, "verified_user", noted)
    return tokens


def test_a_token_that_comes_again_is_not_verified_again_and_one_like_it_is(verified: list[str]) -> None:
    async def story(_: Publisher, __: Clock, tokens: UserTokens) -> None:
        token = OLD.token()
        for _time in range(3):
            assert await tokens.user_of(token) == 42
        assert verified == [token]
        other = OLD.token(sub="43")
        forged = f"{token.rpartition('.')[0]}.{other.rpartition('.')[2]}"
        with pytest.raises(UnknownCredential):
            await tokens.user_of(forged)
        assert verified == [token, forged]

    run(story)


def test_it_ends_with_the_key_that_it_was_verified_by() -> None:
    async def story(publisher: Publisher, _: Clock, tokens: UserTokens) -> None:
        token = OLD.token()
        assert await tokens.user_of(token) == 42
        publisher.document = key_set(NEW)
        assert await tokens.keys.refresh()
        with pytest.raises(UnknownCredential):
            await tokens.user_of(token)

    run(story)


def test_it_ends_when_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(seconds=0.0)
    clock = SimpleNamespace(time=lambda: now.seconds, monotonic=lambda: 0.0)

    async def story(_: Publisher, __: Clock, tokens: UserTokens) -> None:
        monkeypatch.setattr(user_tokens, "time", clock)
        token = OLD.token(exp=1_000)
        leeway = tokens._rules.leeway_seconds  # noqa: SLF001 - what it was made with
        for now.seconds in (0.0, 1_000 + leeway - 0.001):
            assert await tokens.user_of(token) == 42
        now.seconds = 1_000.0 + leeway
        with pytest.raises(TokenExpired):
            await tokens.user_of(token)

    run(story)


def test_no_more_are_kept_than_there_is_room_for(
    verified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_tokens, "MOST_VERIFIED", 2)

    async def story(_: Publisher, __: Clock, tokens: UserTokens) -> None:
        made = [OLD.token(sub=str(user)) for user in (1, 2, 3)]
        for token in [*made, *made[1:], made[0]]:
            await tokens.user_of(token)
        assert verified == [*made, made[0]]

    run(story)
