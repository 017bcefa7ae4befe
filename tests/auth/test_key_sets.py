"""Which keys of a published set are used, and which are passed over, each with its reason."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448
from jwt.algorithms import get_default_algorithms

from app.auth.jose import base64url_text
from app.auth.jwks import SYMMETRIC, parse_key_set, secret_as_key_set
from tests.auth.issuer import SigningKey, key_set

RSA, EC, ED = (SigningKey(algorithm, kid=algorithm) for algorithm in ("RS256", "ES256", "EdDSA"))


def jwk_of(algorithm: str, public: Any) -> dict[str, Any]:
    return {**get_default_algorithms()[algorithm].to_jwk(public, as_dict=True), "kid": "k"}


def number(value: int) -> str:
    return base64url_text(value.to_bytes((value.bit_length() + 7) // 8))


def test_one_key_of_each_kind_is_bound_to_its_algorithm() -> None:
    found = parse_key_set(key_set(RSA, EC, ED))
    assert [(key.kid, key.algorithm) for key in found.keys] == [
        (kid, kid) for kid in ("RS256", "ES256", "EdDSA")
    ]
    assert found.passed_over == ()


UNUSABLE: dict[str, tuple[Any, str]] = {
    "no object": (7, "is of no kind"),
    "no kty": ({"kid": "k"}, "is of no kind"),
    "kty is a list": ({"kty": ["RSA"]}, "is of no kind"),
    "a secret": ({"kty": "oct", "k": base64url_text(b"x" * 32), "alg": "HS256"}, "is of no kind"),
    "P-384": (jwk_of("ES384", ec.generate_private_key(ec.SECP384R1()).public_key()), "is of no kind"),
    "secp256k1": (jwk_of("ES256K", ec.generate_private_key(ec.SECP256K1()).public_key()), "is of no kind"),
    "Ed448": (jwk_of("EdDSA", ed448.Ed448PrivateKey.generate().public_key()), "is of no kind"),
    "P-256 that says P-384": (EC.jwk(crv="P-384"), "is of no kind"),
    "for PS256": (RSA.jwk(alg="PS256"), "for another algorithm"),
    "for HS256": (RSA.jwk(alg="HS256"), "for another algorithm"),
    "alg is a number": (RSA.jwk(alg=256), "for another algorithm"),
    "for encryption": (RSA.jwk(use="enc"), "is not for signatures"),
    "to sign with": (EC.jwk(key_ops=["sign"]), "is not for verifying"),
    "key_ops is a text": (EC.jwk(key_ops="verify"), "is not for verifying"),
    "kid is a number": (EC.jwk(kid=7), "kid that is no string"),
    "private": (EC.jwk(d=base64url_text(b"d" * 32)), "shows its private part"),
    "no modulus": (RSA.jwk(n=None), "does not make a key"),
    "modulus is a number": (RSA.jwk(n=7), "has no value of n"),
    "modulus with padding": (RSA.jwk(n=RSA.jwk()["n"] + "=="), "base64url"),
    "1024 bits": (RSA.jwk(n=number(2**1023 + 1)), "2048 to 8192 bits"),
    "16384 bits": (RSA.jwk(n=number(2**16_383 + 1)), "2048 to 8192 bits"),
    "exponent 1": (RSA.jwk(e=number(1)), "keys[0] "),
    "exponent 3": (RSA.jwk(e=number(3)), "weak exponent"),
    "exponent 65538": (RSA.jwk(e=number(65_538)), "keys[0] "),
    "exponent of 2000 bits": (RSA.jwk(e=number(2**2000 + 1)), "weak exponent"),
    "off the curve": (EC.jwk(y=EC.jwk()["x"]), "keys[0] "),
    "point too short": (ED.jwk(x=base64url_text(b"x" * 31)), "does not make a key"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_key_that_cannot_be_used_is_passed_over_and_costs_no_other(case: str) -> None:
    jwk, reason = UNUSABLE[case]
    found = parse_key_set(key_set(jwk, ED if case != "point too short" else EC))
    assert len(found.keys) == 1
    (told,) = found.passed_over
    assert told.startswith("keys[0] ")
    assert reason in told


def test_keys_that_share_a_kid_are_all_passed_over() -> None:
    twin = SigningKey("ES256", kid="twin")
    found = parse_key_set(key_set(twin, SigningKey("ES256", kid="twin"), SigningKey("EdDSA", kid="twin")))
    assert [key.algorithm for key in found.keys] == ["EdDSA"]
    assert found.passed_over == ("keys[0] has the kid of another", "keys[1] has the kid of another")


def test_a_kid_may_be_shared_with_a_key_for_encryption() -> None:
    other = SigningKey("RS256", kid="RS256").jwk(use="enc")
    assert [key.kid for key in parse_key_set(key_set(RSA, other)).keys] == ["RS256"]


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"not JSON",
        b"\xff",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": [], "keys": []}',
        b'{"keys": [NaN]}',
        b'{"keys":' + b"[" * 100_000,
        json.dumps({"keys": [{}] * 101}).encode(),
    ],
    ids=lambda document: repr(document[:20]),
)
def test_what_is_no_key_set_is_refused_as_a_whole(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_key_set(document)


def test_a_secret_of_32_bytes_makes_one_key_and_a_shorter_one_none() -> None:
    assert [key.algorithm for key in parse_key_set(secret_as_key_set(b"x" * 32), SYMMETRIC).keys] == ["HS256"]
    assert parse_key_set(secret_as_key_set(b"x" * 31), SYMMETRIC).keys == ()
