"""The keys that user tokens are verified with, from a JWK Set (RFC 7517). Pure."""

import math
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from jwt import PyJWTError
from jwt.algorithms import get_default_algorithms

from app.auth.jose import base64url, base64url_text, json_object

# A key is for one algorithm, by its type: the token's header only says which, and never gets another tried.
ASYMMETRIC = frozenset({"RS256", "ES256", "EdDSA"})
SYMMETRIC = frozenset({"HS256"})
LEAST_SECRET_BYTES = 32  # RFC 7518, section 3.2: as long as the digest
MOST_KEYS = 100
LEAST_RSA_BITS, MOST_RSA_BITS = 2048, 8192  # the time of one check grows with the square
RSA_EXPONENTS = range(65_537, 2**32, 2)  # FIPS 186-5, section 5.1 from below; the time of a check from above

_ALGORITHMS = get_default_algorithms()


@dataclass(frozen=True, slots=True)
class Key:
    kid: str | None
    algorithm: str
    material: Any

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        return _ALGORITHMS[self.algorithm].verify(message, self.material, signature)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys for `algorithms` alone. `passed_over` tells which cannot be used, or not safely, and why."""

    algorithms: AbstractSet[str]
    keys: tuple[Key, ...]
    passed_over: tuple[str, ...]

    def fitting(self, algorithm: str, kid: str | None) -> tuple[Key, ...]:
        """The keys that may have signed a token. One without `kid` fits where none has the token's."""
        keys = [key for key in self.keys if key.algorithm == algorithm]
        if kid is None:
            return tuple(keys)
        named = [key for key in keys if key.kid == kid]
        return tuple(named or (key for key in keys if key.kid is None))


def parse_key_set(document: bytes, algorithms: AbstractSet[str] = ASYMMETRIC) -> KeySet:
    """The usable keys of a JWK Set for `algorithms`. Raises ValueError where it is no JWK Set at all."""
    jwks = json_object(document).get("keys")
    if not isinstance(jwks, list) or len(jwks) > MOST_KEYS:
        raise ValueError(f"is no JWK Set of at most {MOST_KEYS} keys")
    names = Counter(_name(jwk) for jwk in jwks)
    keys, passed_over = [], []
    for place, jwk in enumerate(jwks):
        try:
            keys.append(_key(jwk, algorithms, names))
        except ValueError as reason:
            passed_over.append(f"keys[{place}] {reason}")
    return KeySet(algorithms, tuple(keys), tuple(passed_over))


def secret_as_key_set(secret: bytes) -> bytes:
    """A JWK Set of one HS256 key, so that a secret takes the path of all other keys."""
    return b'{"keys": [{"kty": "oct", "alg": "HS256", "k": "%s"}]}' % base64url_text(secret).encode()


def _name(jwk: Any) -> tuple[str, str | None]:
    """What a token may find it by, unless it is for encryption."""
    is_for_signatures = isinstance(jwk, dict) and jwk.get("use", "sig") == "sig"
    return (repr(jwk.get("kid")), _algorithm_of(jwk)) if is_for_signatures else ("", None)


def _key(jwk: Any, algorithms: AbstractSet[str], names: Counter[tuple[str, str | None]]) -> Key:
    algorithm = _algorithm_of(jwk)
    if algorithm is None or algorithm not in algorithms:
        raise ValueError(f"is of no kind for {', '.join(sorted(algorithms))}")
    if jwk.get("alg", algorithm) != algorithm:
        raise ValueError(f"is for another algorithm than {algorithm}")
    if jwk.get("use", "sig") != "sig":
        raise ValueError("is not for signatures")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise ValueError("is not for verifying")
    kid = jwk.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("has a kid that is no string")
    # Also where the other one cannot be used: which of them is meant is not known.
    if kid is not None and names[repr(kid), algorithm] > 1:
        raise ValueError("has the kid of another")
    return Key(kid, algorithm, _material(jwk, algorithm))


def _algorithm_of(jwk: Any) -> str | None:
    match jwk:
        case {"kty": "RSA"}:
            return "RS256"
        case {"kty": "EC", "crv": "P-256"}:
            return "ES256"
        case {"kty": "OKP", "crv": "Ed25519"}:
            return "EdDSA"
        case {"kty": "oct"}:
            return "HS256"
    return None


def _material(jwk: dict[str, Any], algorithm: str) -> Any:
    """What PyJWT verifies with, parsed once and not at each token."""
    if "d" in jwk:
        raise ValueError("shows its private part")
    for name in {"n", "e", "x", "y", "k"} & jwk.keys():
        if not isinstance(jwk[name], str) or not base64url(jwk[name]):
            raise ValueError(f"has no value of {name}")
    try:
        material: Any = _ALGORITHMS[algorithm].from_jwk(jwk)
    except (PyJWTError, UnsupportedAlgorithm, KeyError):
        raise ValueError(f"does not make a key for {algorithm}") from None
    if algorithm == "RS256":
        _refuse_weak_rsa(material.public_numbers().n, material.public_numbers().e)
    if algorithm == "HS256" and len(material) < LEAST_SECRET_BYTES:
        raise ValueError(f"has fewer than {LEAST_SECRET_BYTES} bytes")
    return material


def _refuse_weak_rsa(modulus: int, exponent: int) -> None:
    if not LEAST_RSA_BITS <= modulus.bit_length() <= MOST_RSA_BITS:
        raise ValueError(f"is not RSA of {LEAST_RSA_BITS} to {MOST_RSA_BITS} bits")
    if exponent not in RSA_EXPONENTS:
        raise ValueError("has a weak exponent")
    if all(modulus % prime in powers for prime, powers in _ROCA_FINGERPRINT):
        raise ValueError("was made by a generator whose keys can be factored (ROCA, CVE-2017-15361)")


def _roca_fingerprint() -> Iterator[tuple[int, frozenset[int]]]:
    """The primes below 168, each with the remainders of powers of 65537: those keys have no other."""
    for prime in range(3, 168, 2):
        if all(prime % divisor for divisor in range(3, math.isqrt(prime) + 1, 2)):
            yield prime, frozenset(pow(65_537, power, prime) for power in range(prime))


_ROCA_FINGERPRINT = tuple(_roca_fingerprint())
