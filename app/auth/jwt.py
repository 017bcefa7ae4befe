"""User tokens: JWTs signed in the compact form (RFC 7519, RFC 7515), verified as RFC 8725 advises. Pure.

PyJWT makes the keys and checks the signatures. What comes before and after that is here, because PyJWT lets a
member be there twice, takes times that are texts, and has no bound.
"""

import math
from dataclasses import dataclass
from typing import Any

from app.auth.jose import base64url, json_object
from app.auth.jwks import KeySet
from app.texts import MOST_USER_ID, user_id

MOST_TOKEN_CHARACTERS = 16_384
# Absent or one of these. The same keys sign other things, such as logout tokens, which let nobody in.
_TYPES = {"jwt", "at+jwt"}
# Extensions that change what the rest means (RFC 7515, section 4.1.11; RFC 7797): none is known here.
_EXTENSIONS = {"crit", "b64"}


class Refused(Exception):
    """The token does not hold. The text says why; no caller is told, or the next forgery would be better."""


class NoKeyFits(Refused):
    """The set has no such key, or not yet."""


class Expired(Refused):
    """Whatever else was to be checked holds: the token was good."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a token must say. `leeway_seconds` is for clocks that differ."""

    issuer: str
    audience: str
    user_claim: str
    leeway_seconds: int


@dataclass(frozen=True, slots=True)
class VerifiedUser:
    """Whom a token names that holds, and until when it does: Unix time, the leeway included."""

    id: int
    ends_at: float


def verified_user(token: str, keys: KeySet, rules: Rules, now: float) -> VerifiedUser:
    """The user whom the token names. Raises Refused: NoKeyFits, or Expired where nothing else is wrong."""
    claims = _object(verified_payload(token, keys), "payload")
    if claims.get("iss") != rules.issuer:
        raise Refused("iss is another")
    audience = claims.get("aud")
    if rules.audience not in (audience if isinstance(audience, list) else [audience]):
        raise Refused("aud is another")
    user = _user(claims.get(rules.user_claim))
    return VerifiedUser(user, _end_in_time(claims, now, rules.leeway_seconds))


def verified_payload(token: str, keys: KeySet) -> bytes:
    """The bytes that one of `keys` has signed. Raises Refused.

    The key is the set's. Those that a header has or points at (`jwk`, `jku`, `x5c`, `x5u`) are the forger's
    own, and are not looked at (RFC 8725, section 3.10).
    """
    if len(token) > MOST_TOKEN_CHARACTERS:
        raise Refused("is too long")
    parts = token.split(".")
    if len(parts) != 3:
        raise Refused("has not three parts")
    try:
        header, payload, signature = map(base64url, parts)
    except ValueError:
        raise Refused("is not base64url") from None
    algorithm, kid = _algorithm_and_kid(_object(header, "header"))
    if algorithm not in keys.algorithms:
        raise Refused("the algorithm is not allowed")
    fitting = keys.fitting(algorithm, kid)
    if not fitting:
        raise NoKeyFits("no key fits")
    # Not each in turn: which key has signed is the issuer's to say, and a forger would get as many tries.
    if len(fitting) > 1:
        raise Refused("more than one key fits")
    if not fitting[0].has_signed(token.rpartition(".")[0].encode(), signature):
        raise Refused("the signature is wrong")
    return payload


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        return json_object(data)
    except ValueError as reason:
        raise Refused(f"the {name} {reason}") from None


def _algorithm_and_kid(header: dict[str, Any]) -> tuple[str, str | None]:
    if not _EXTENSIONS.isdisjoint(header):
        raise Refused("has an extension")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
        raise Refused("is of another type")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise Refused("names no algorithm")
    if "kid" in header and not isinstance(kid, str):
        raise Refused("kid is no string")
    return algorithm, kid


def _user(claim: object) -> int:
    """A text of decimal digits, as in a path, or a JSON integer: 42.0 and true are neither."""
    if type(claim) is int and 1 <= claim <= MOST_USER_ID:
        return claim
    try:
        return user_id(claim if isinstance(claim, str) else "")
    except ValueError:
        raise Refused("names no user") from None


def _end_in_time(claims: dict[str, Any], now: float, leeway: int) -> float:
    if "exp" not in claims:
        raise Refused("has no exp")
    instants = {name: _instant(claims[name]) for name in ("exp", "nbf", "iat") if name in claims}
    for name in ("nbf", "iat"):
        if instants.get(name, now) > now + leeway:
            raise Refused(f"{name} is to come")
    ends_at = instants["exp"] + leeway
    if ends_at <= now:
        raise Expired("exp is past")
    return ends_at


def _instant(value: object) -> float:
    """Seconds since 1970, whole or not (RFC 7519, section 2): no text, no truth value, no infinity."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return value
    raise Refused("a time is no number")
