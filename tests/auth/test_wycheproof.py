"""Project Wycheproof's vectors for signatures and keys, by the function that verifies every user token."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.auth.jwks import ASYMMETRIC, SYMMETRIC, KeySet, parse_key_set
from app.auth.jwt import Refused, verified_payload

VECTORS = Path(__file__).parent.parent.parent.parent / "shared" / "vectors"
NAMES = ("json_web_signature", "json_web_key", "json_web_crypto")
ALLOWED = ASYMMETRIC | SYMMETRIC

# Verdicts of the vectors that no verifier can give, each with the reason.
MISTAKEN = {
    ("json_web_signature", 367): "said to be wrongly padded; byte for byte vector 357, which is valid",
    ("json_web_signature", 370): "said to be wrongly padded; byte for byte vector 357, which is valid",
    ("json_web_signature", 372): "said to be valid; has a ? in it, for which 371 is invalid",
    ("json_web_signature", 373): "said to be valid; has a ? in it, for which 371 is invalid",
}
# How many vectors each file has: of algorithms that users' tokens may have, and of others.
RUN = {"json_web_signature": (316, 85), "json_web_key": (15, 11), "json_web_crypto": (49, 34)}


def vectors(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    file = VECTORS / f"{name}_test.json"
    if not file.exists():
        pytest.skip(f"the vectors of project Wycheproof are not at {file}")
    groups = json.loads(file.read_text())["testGroups"]
    return [(group, test) for group in groups for test in group["tests"]]


def jwks_of(group: dict[str, Any]) -> list[dict[str, Any]]:
    """What a verifier is given: the public part, or the secret where there is none."""
    key = group.get("public") or group["private"]
    return list(key["keys"]) if "keys" in key else [key]


def keys_of(group: dict[str, Any]) -> KeySet:
    """As the service takes them: secrets are never beside public keys."""
    jwks = jwks_of(group)
    algorithms = SYMMETRIC if all(jwk["kty"] == "oct" for jwk in jwks) else ASYMMETRIC
    return parse_key_set(json.dumps({"keys": jwks}).encode(), algorithms)


def is_allowed(group: dict[str, Any]) -> bool:
    return all(jwk.get("alg") in {None, *ALLOWED} for jwk in jwks_of(group))


def verdict(group: dict[str, Any], test: dict[str, Any]) -> str:
    token = test.get("jws", test.get("jwe"))
    try:
        verified_payload(token if isinstance(token, str) else json.dumps(token), keys_of(group))
    except Refused:
        return "invalid"
    return "valid"


@pytest.mark.parametrize("name", NAMES)
def test_every_vector_of_an_allowed_algorithm_has_its_verdict(name: str) -> None:
    wrong = {
        (name, test["tcId"]): (test["comment"], test["result"], found)
        for group, test in vectors(name)
        if is_allowed(group) and (found := verdict(group, test)) != test["result"]
    }
    assert wrong.keys() == {vector for vector in MISTAKEN if vector[0] == name}, wrong


@pytest.mark.parametrize("name", NAMES)
def test_every_vector_of_another_algorithm_is_refused(name: str) -> None:
    found = {verdict(group, test) for group, test in vectors(name) if not is_allowed(group)}
    assert found == {"invalid"}


@pytest.mark.parametrize("name", NAMES)
def test_no_vector_is_left_out(name: str) -> None:
    count = Counter(is_allowed(group) for group, _ in vectors(name))
    assert (count[True], count[False]) == RUN[name]
    assert {test["result"] for _, test in vectors(name)} == {"valid", "invalid"}, "none is merely acceptable"


def test_the_vectors_that_are_mistaken_contradict_others() -> None:
    tokens = {test["tcId"]: str(test.get("jws")) for _, test in vectors("json_web_signature")}
    assert tokens[367] == tokens[370] == tokens[357]
    assert all("?" in tokens[vector] for vector in (371, 372, 373))
