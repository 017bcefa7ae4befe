"""Every way in which a token can be bad, well signed or not. No service: the function that it asks."""

from dataclasses import replace

import pytest

from app.auth.jose import base64url
from app.auth.jwks import SYMMETRIC, KeySet, parse_key_set, secret_as_key_set
from app.auth.jwt import MOST_TOKEN_CHARACTERS, Expired, NoKeyFits, Refused, verified_user
from tests.auth.bad_tokens import ALL, EC, ED, NOW, PUBLISHED, RSA, STRANGER, hs256
from tests.auth.issuer import AUDIENCE, RULES, SigningKey, key_set

KEYS = parse_key_set(PUBLISHED)


def user(token: str, keys: KeySet = KEYS, now: float = NOW) -> int:
    return verified_user(token, keys, RULES, now).id


@pytest.mark.parametrize("key", [RSA, EC, ED], ids=lambda key: key.algorithm)
def test_a_good_token_names_its_user(key: SigningKey) -> None:
    assert user(key.token()) == 42


@pytest.mark.parametrize(
    "token",
    [
        EC.token(sub=str(2**64 - 1)),
        EC.token(sub=2**64 - 1),
        EC.token(aud=["another", AUDIENCE]),
        EC.token(exp=NOW + 0.5),
        EC.token(exp=10**400),
        EC.token(nbf=NOW, iat=NOW),
        EC.token(header={"typ": "at+jwt"}),
        EC.token(header={"typ": "application/AT+JWT"}),
        EC.token(header={"jku": "https://evil.test/", "x5u": "https://evil.test/", "x5c": ["MII="]}),
        EC.token(header={"jwk": STRANGER.jwk()}),
    ],
)
def test_what_a_good_token_may_have(token: str) -> None:
    assert user(token) in {42, 2**64 - 1}


@pytest.mark.parametrize("token", [pytest.param(token, id=name) for name, token in ALL.items()])
def test_a_token_that_is_forged_or_can_be_read_in_two_ways_is_refused(token: str) -> None:
    with pytest.raises(Refused):
        user(token)


def test_clocks_may_differ_by_the_leeway_and_no_second_more() -> None:
    for claims in ({"nbf": NOW + 30}, {"iat": NOW + 30}, {"exp": NOW - 29}):
        assert user(EC.token(**claims)) == 42
    for claims in ({"nbf": NOW + 31}, {"iat": NOW + 31}, {"exp": NOW - 30}):
        with pytest.raises(Refused):
            user(EC.token(**claims))


def test_a_long_token_is_refused_before_anything_of_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.auth.jwt.base64url", lambda _: pytest.fail("decoded"))
    with pytest.raises(Refused, match="too long"):
        user(EC.token(padding="x" * MOST_TOKEN_CHARACTERS))


def test_only_a_token_that_is_otherwise_good_is_told_to_have_expired() -> None:
    expired = {"exp": NOW - 31}
    with pytest.raises(Expired):
        user(EC.token(**expired))
    for token in (
        STRANGER.token(**expired),
        EC.token(aud="other", **expired),
        EC.token(iss="other", **expired),
        EC.token(sub="ana", **expired),
    ):
        with pytest.raises(Refused) as refused:
            user(token)
        assert not isinstance(refused.value, Expired)


def test_a_token_without_a_kid_holds_only_where_one_key_fits() -> None:
    header = b'{"alg":"ES256"}'
    token = EC.token_of(header, base64url(EC.token().split(".")[1]))
    assert user(token) == 42
    with pytest.raises(Refused, match="more than one"):
        user(token, parse_key_set(key_set(RSA, EC, SigningKey("ES256"))))
    with pytest.raises(NoKeyFits):
        user(token, parse_key_set(key_set(RSA, ED)))


def test_a_key_without_a_kid_serves_tokens_that_name_one() -> None:
    assert user(EC.token(), parse_key_set(key_set(EC.jwk(kid=None), RSA))) == 42


def test_a_secret_takes_hs256_alone() -> None:
    secret = b"a secret of 32 bytes or more: yes"
    keys = parse_key_set(secret_as_key_set(secret), SYMMETRIC)
    assert user(hs256(secret), keys) == 42
    for token in (hs256(secret + b"!"), EC.token(), hs256(secret, alg="HS512"), hs256(secret, alg="none")):
        with pytest.raises(Refused):
            user(token, keys)


def test_another_claim_may_name_the_user() -> None:
    token = EC.token(sub="auth0|5f7c", **{"https://cupo.test/user_id": 43})
    assert verified_user(token, KEYS, replace(RULES, user_claim="https://cupo.test/user_id"), NOW).id == 43
    with pytest.raises(Refused):
        user(token)
