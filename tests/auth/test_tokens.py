"""Every way in which a token can be bad, well signed or not. No service: the function that it asks."""

import hashlib
import hmac
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.auth.jose import base64url, base64url_text
from app.auth.jwks import SYMMETRIC, KeySet, parse_key_set, secret_as_key_set
from app.auth.jwt import MOST_TOKEN_CHARACTERS, Expired, NoKeyFits, Refused, user_of
from tests.auth.issuer import AUDIENCE, ISSUER, RULES, SigningKey, key_set

RSA, EC, ED = (SigningKey(algorithm, kid=algorithm) for algorithm in ("RS256", "ES256", "EdDSA"))
STRANGER = SigningKey("ES256", kid="ES256")
KEYS = parse_key_set(key_set(RSA, EC, ED))
NOW = int(time.time())
DEEP = b"[" * 5_000 + b"]" * 5_000


def user(token: str, keys: KeySet = KEYS, now: float = NOW) -> int:
    return user_of(token, keys, RULES, now)


def hs256(secret: bytes, **header: Any) -> str:
    """A token that whoever knows `secret` can make: a public key is no secret."""
    head = json.dumps({"alg": "HS256", "kid": "RS256", **header}).encode()
    claims = json.dumps({"iss": ISSUER, "aud": AUDIENCE, "sub": "42", "exp": NOW + 600}).encode()
    message = f"{base64url_text(head)}.{base64url_text(claims)}"
    signature = hmac.digest(secret, message.encode(), hashlib.sha256)
    return f"{message}.{base64url_text(signature)}"


def raw_claims(text: str) -> str:
    return EC.token_of(b'{"alg":"ES256","kid":"ES256"}', text.encode())


def with_claims(more: str) -> str:
    """Good but for what `more` adds to the JSON."""
    return raw_claims(f'{{"iss":"{ISSUER}","aud":"{AUDIENCE}",{more}}}')


def raw_header(text: str) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "42", "exp": NOW + 600}
    return EC.token_of(text.encode(), json.dumps(claims).encode())


def part(token: str, place: int, change: Callable[[str], str]) -> str:
    parts = token.split(".")
    parts[place] = change(parts[place])
    return ".".join(parts)


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
        EC.token(exp=NOW - 29),
        EC.token(exp=10**400),
        EC.token(nbf=NOW + 29, iat=NOW + 29),
        EC.token(header={"typ": "at+jwt"}),
        EC.token(header={"typ": "application/AT+JWT"}),
        EC.token(header={"jku": "https://evil.test/", "x5u": "https://evil.test/", "jwk": STRANGER.jwk()}),
    ],
)
def test_what_a_good_token_may_have(token: str) -> None:
    assert user(token) in {42, 2**64 - 1}


CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.test/"},
    "issuer without the slash": {"iss": ISSUER.rstrip("/")},
    "no issuer": {"iss": None},
    "issuer is a list": {"iss": [ISSUER]},
    "another audience": {"aud": "https://other.test/"},
    "no audience": {"aud": None},
    "audience is a part": {"aud": AUDIENCE + "more"},
    "audience is an object": {"aud": {AUDIENCE: True}},
    "other audiences": {"aud": ["a", "b"]},
    "no expiry": {"exp": None},
    "expiry is a text": {"exp": str(NOW + 600)},
    "expiry is true": {"exp": True},
    "expiry is an object": {"exp": {}},
    "expiry is infinite": {"exp": math.inf},
    "expiry is no number": {"exp": math.nan},
    "not yet valid": {"nbf": NOW + 31},
    "not before a text": {"nbf": "0"},
    "issued in the future": {"iat": NOW + 31},
    "issued at a list": {"iat": [NOW]},
    "no user": {"sub": None},
    "user is empty": {"sub": ""},
    "user is a name": {"sub": "ana"},
    "user is 0": {"sub": "0"},
    "user is 0, as a number": {"sub": 0},
    "user is negative": {"sub": -42},
    "user is too large": {"sub": str(2**64)},
    "user is too large, as a number": {"sub": 2**64},
    "user with a sign": {"sub": "+42"},
    "user with zeros": {"sub": "042"},
    "user with a space": {"sub": "42 "},
    "user with a line": {"sub": "42\n"},
    "user in Arabic digits": {"sub": "٤٢"},
    "user in hex": {"sub": "0x2a"},
    "user with a fraction": {"sub": 42.0},
    "user is true": {"sub": True},
    "user is a list": {"sub": ["42"]},
    "user is an object": {"sub": {"id": 42}},
}


@pytest.mark.parametrize("case", CLAIMS)
def test_a_well_signed_token_with_bad_claims_is_refused(case: str) -> None:
    with pytest.raises(Refused):
        user(EC.token(**CLAIMS[case]))


def unsigned(algorithm: object) -> str:
    header = base64url_text(json.dumps({"alg": algorithm}).encode())
    return part(part(EC.token(), 0, lambda _: header), 2, lambda _: "")


NO_ALGORITHM: tuple[Any, ...] = (
    "none",
    "None",
    "NONE",
    "nOnE",
    "",
    " none",
    None,
    0,
    [],
    ["none"],
    {},
    True,
    "HS256",
)
PUBLIC = RSA.private.public_key()
FORGED: dict[str, str] = {
    "signed by another": STRANGER.token(),
    "another kid": EC.token(header={"kid": "EdDSA"}),
    "RS256's kid with ES256": EC.token(header={"kid": "RS256"}),
    "HS256 with the PEM": hs256(PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)),
    "HS256 with the PEM, trimmed": hs256(
        PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).strip()
    ),
    "HS256 with PKCS 1": hs256(PUBLIC.public_bytes(Encoding.PEM, PublicFormat.PKCS1)),
    "HS256 with the DER": hs256(PUBLIC.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)),
    "HS256 with the JWK": hs256(json.dumps(RSA.jwk()).encode()),
    "HS256 with the set": hs256(key_set(RSA, EC, ED)),
    "HS256 with the modulus": hs256(RSA.jwk()["n"].encode()),
    "HS256 with nothing": hs256(b""),
    "HS256 with Ed25519's point": hs256(base64url(ED.jwk()["x"]), kid="EdDSA"),
    "its own key in jwk": STRANGER.token(header={"jwk": STRANGER.jwk()}),
    "its own key in jku": STRANGER.token(header={"jku": "http://127.0.0.1:1/", "kid": "new"}),
    "signature left out": part(EC.token(), 2, lambda _: ""),
    "signature of zeros": part(EC.token(), 2, lambda _: base64url_text(bytes(64))),
    "signature in DER": part(EC.token(), 2, lambda _: base64url_text(b"\x30\x06\x02\x01\x01\x02\x01\x01")),
    "payload of another": part(EC.token(), 1, lambda _: EC.token(sub="43").split(".")[1]),
    "header of another": part(EC.token(), 0, lambda _: ED.token().split(".")[0]),
    **{f"alg {alg!r}": unsigned(alg) for alg in NO_ALGORITHM},
    "alg is another's name": EC.token(header={"alg": "ES384"}),
    "alg in another case": EC.token(header={"alg": "es256"}),
}
HEADERS: dict[str, str] = {
    "no alg": raw_header('{"kid": "ES256"}'),
    "alg twice": raw_header('{"alg": "none", "alg": "ES256", "kid": "ES256"}'),
    "kid twice": raw_header('{"alg": "ES256", "kid": "x", "kid": "ES256"}'),
    "a list": raw_header('["ES256"]'),
    "not JSON": raw_header("ES256"),
    "two values": raw_header('{"alg": "ES256", "kid": "ES256"} {}'),
    "NaN": raw_header('{"alg": "ES256", "kid": "ES256", "x": NaN}'),
    "deep": EC.token_of(DEEP, b"{}"),
    "a number of many digits": raw_header('{"alg": "ES256", "kid": "ES256", "x": ' + "9" * 5_000 + "}"),
    "UTF-16": EC.token_of('{"alg": "ES256"}'.encode("utf-16"), b"{}"),
    "a byte order mark": raw_header('\ufeff{"alg": "ES256", "kid": "ES256"}'),
    "crit": EC.token(header={"crit": ["exp"]}),
    "crit that is empty": EC.token(header={"crit": []}),
    "crit b64": EC.token(header={"crit": ["b64"], "b64": False}),
    "b64": EC.token(header={"b64": True}),
    "a logout token": EC.token(header={"typ": "logout+jwt"}),
    "a proof": EC.token(header={"typ": "dpop+jwt"}),
    "typ is a list": EC.token(header={"typ": ["JWT"]}),
    "kid is a number": EC.token(header={"kid": 7}),
    "kid is null": EC.token(header={"kid": None}),
    "kid is a list": EC.token(header={"kid": ["ES256"]}),
    "kid climbs": EC.token(header={"kid": "../../../../dev/null"}),
    "kid is SQL": EC.token(header={"kid": "' UNION SELECT 'x' -- "}),
    "kid is long": EC.token(header={"kid": "k" * 10_000}),
    "kid has a NUL": EC.token(header={"kid": "ES256\0"}),
}
LATER = NOW + 600
PAYLOADS: dict[str, str] = {
    "sub twice": with_claims(f'"exp":{LATER},"sub":"42","sub":"43"'),
    "exp twice": with_claims(f'"exp":1,"exp":{LATER},"sub":"42"'),
    "twice, deep inside": with_claims(f'"exp":{LATER},"sub":"42","x":[{{"y":1,"y":2}}]'),
    "exp 1e999": with_claims('"exp":1e999,"sub":"42"'),
    "exp NaN": with_claims('"exp":NaN,"sub":"42"'),
    "exp Infinity": with_claims('"exp":Infinity,"sub":"42"'),
    "exp of 5,000 digits": with_claims(f'"exp":{"9" * 5_000},"sub":"42"'),
    "empty": raw_claims(""),
    "a list": raw_claims("[]"),
    "a text": raw_claims('"42"'),
    "not UTF-8": EC.token_of(b'{"alg":"ES256","kid":"ES256"}', b'{"sub":"\xff"}'),
    "deep": EC.token_of(b'{"alg":"ES256","kid":"ES256"}', DEEP),
    "a token inside": raw_claims(EC.token()),
}
GOOD = EC.token()
TEXTS: dict[str, str] = {
    "empty": "",
    "dots": "..",
    "no dots": "x",
    "two parts": GOOD.rpartition(".")[0],
    "four parts": GOOD + ".",
    "five parts": "a.b.c.d.e",
    "padding": part(GOOD, 0, lambda text: text + "=" * (-len(text) % 4 or 4)),
    "a space": part(GOOD, 1, lambda text: " " + text),
    "a tab": part(GOOD, 1, lambda text: text + "\t"),
    "a line": GOOD + "\n",
    "the other alphabet": part(GOOD, 2, lambda text: text[:-1] + "+"),
    "a character that is none": part(GOOD, 0, lambda text: text + "?"),
    "stray bits": part(GOOD, 2, lambda text: text[:-1] + chr(ord(text[-1]) + 1)),
    "not ASCII": part(GOOD, 0, lambda text: text + "é"),
    "half a pair": part(GOOD, 0, lambda text: text + "\udcff"),
    "JSON in place of the compact form": json.dumps({"payload": GOOD.split(".")[1], "signatures": []}),
    "one character too long": ".".join(("a" * (MOST_TOKEN_CHARACTERS - 3), "b", "cc")),
    "a megabyte": "a" * 2**20 + ".b.c",
}


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(token, id=f"{kind}: {name}")
        for kind, cases in {"forged": FORGED, "header": HEADERS, "payload": PAYLOADS, "text": TEXTS}.items()
        for name, token in cases.items()
    ],
)
def test_a_token_that_is_forged_or_can_be_read_in_two_ways_is_refused(token: str) -> None:
    with pytest.raises(Refused):
        user(token)


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
    assert user_of(token, KEYS, replace(RULES, user_claim="https://cupo.test/user_id"), NOW) == 43
    with pytest.raises(Refused):
        user(token)
