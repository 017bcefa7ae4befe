"""Tokens that must let nobody in, well signed or not, and the keys that the good ones are signed with."""

import hashlib
import hmac
import json
import math
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.auth.jose import base64url, base64url_text
from app.auth.jwt import MOST_TOKEN_CHARACTERS
from tests.auth.issuer import AUDIENCE, ISSUER, SigningKey, key_set

RSA, EC, ED = (SigningKey(algorithm, kid=algorithm) for algorithm in ("RS256", "ES256", "EdDSA"))
STRANGER = SigningKey("ES256", kid="ES256")
PUBLISHED = key_set(RSA, EC, ED)
NOW = int(time.time())
DEEP = b"[" * 5_000 + b"]" * 5_000


def hs256(secret: bytes, **header: Any) -> str:
    """A token that whoever knows `secret` can make: a public key is no secret."""
    head = json.dumps({"alg": "HS256", "kid": "RS256", **header}).encode()
    claims = json.dumps({"iss": ISSUER, "aud": AUDIENCE, "sub": "42", "exp": NOW + 86_400}).encode()
    message = f"{base64url_text(head)}.{base64url_text(claims)}"
    signature = hmac.digest(secret, message.encode(), hashlib.sha256)
    return f"{message}.{base64url_text(signature)}"


def raw_claims(text: str) -> str:
    return EC.token_of(b'{"alg":"ES256","kid":"ES256"}', text.encode())


def with_claims(more: str) -> str:
    """Good but for what `more` adds to the JSON."""
    return raw_claims(f'{{"iss":"{ISSUER}","aud":"{AUDIENCE}",{more}}}')


def raw_header(text: str) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "42", "exp": NOW + 86_400}
    return EC.token_of(text.encode(), json.dumps(claims).encode())


def part(token: str, place: int, change: Callable[[str], str]) -> str:
    parts = token.split(".")
    parts[place] = change(parts[place])
    return ".".join(parts)


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
    "expiry is a text": {"exp": str(NOW + 86_400)},
    "expiry is true": {"exp": True},
    "expiry is an object": {"exp": {}},
    "expiry is infinite": {"exp": math.inf},
    "expiry is no number": {"exp": math.nan},
    "not yet valid": {"nbf": NOW + 3600},
    "not before a text": {"nbf": "0"},
    "issued in the future": {"iat": NOW + 3600},
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
LATER = NOW + 86_400
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

BAD_CLAIMS = {name: EC.token(**claims) for name, claims in CLAIMS.items()}
ALL = {
    f"{kind}: {name}": token
    for kind, tokens in {
        "claims": BAD_CLAIMS,
        "forged": FORGED,
        "header": HEADERS,
        "payload": PAYLOADS,
        "text": TEXTS,
    }.items()
    for name, token in tokens.items()
}
