"""The settings of user tokens: what cannot be meant stops the start, in a line for each."""

import pytest

from app.settings import BadSettings, load_settings

URL = "https://login.test/jwks.json"
SECRET = "a-secret-of-32-bytes-or-some-more"
MEANT = {"jwt_issuer": "https://login.test/", "jwt_audience": "cupo"}


@pytest.mark.parametrize(
    "keys",
    [
        {"jwks_url": URL},
        {"jwks_url": "http://127.0.0.1:9000/jwks"},
        {"jwks_url": "http://[::1]/jwks"},
        {"jwks_url": "http://localhost:9000/jwks"},
        {"jwks_file": "/etc/cupo/jwks.json"},
        {"jwt_hs256_secret": SECRET},
        {"jwt_hs256_secret": "é" * 16},
    ],
)
def test_what_can_be_meant(keys: dict[str, str]) -> None:
    assert load_settings(**keys, **MEANT).jwt_audience == "cupo"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"jwks_url": URL},
            ["JWT_ISSUER: must be set", "JWT_AUDIENCE: must be set"],
        ),
        ({"jwks_url": URL, "jwt_issuer": "x"}, ["JWT_AUDIENCE: must be set where CUPO_JWKS_URL is"]),
        ({"jwt_issuer": "x"}, ["JWT_ISSUER: is of no use without one of CUPO_JWKS_URL, CUPO_JWKS_FILE, "]),
        ({**MEANT, "jwks_url": "http://login.test/jwks"}, ["JWKS_URL: must start with https://"]),
        ({**MEANT, "jwks_url": "http://127.0.0.1.evil.test/"}, ["JWKS_URL: must start with https://"]),
        ({**MEANT, "jwks_url": "http://localhost.evil.test/"}, ["JWKS_URL: must start with https://"]),
        ({**MEANT, "jwks_url": "http://10.0.0.1/"}, ["JWKS_URL: must start with https://"]),
        ({**MEANT, "jwks_url": "file:///etc/passwd"}, ["JWKS_URL: is not the address of a key set"]),
        ({**MEANT, "jwks_url": "ftp://login.test/"}, ["JWKS_URL: must start with https://"]),
        ({**MEANT, "jwks_url": f"https://me:{SECRET}@login.test/"}, ["JWKS_URL: is not the address of a"]),
        ({**MEANT, "jwks_url": "https:///jwks"}, ["JWKS_URL: is not the address of a key set"]),
        ({**MEANT, "jwks_url": "https://login.test:99999/"}, ["JWKS_URL: Port out of range"]),
        ({**MEANT, "jwks_url": URL, "jwks_file": "x"}, ["JWKS_FILE: cannot be set beside CUPO_JWKS_URL"]),
        ({**MEANT, "jwks_url": URL, "jwt_hs256_secret": SECRET}, ["JWT_HS256_SECRET: cannot be set beside"]),
        ({**MEANT, "jwks_file": "x", "jwt_hs256_secret": SECRET}, ["JWT_HS256_SECRET: cannot be set beside"]),
        ({**MEANT, "jwt_hs256_secret": "x" * 31}, ["JWT_HS256_SECRET: must have at least 32 bytes"]),
        ({**MEANT, "jwks_url": URL, "jwt_leeway_seconds": 301}, ["JWT_LEEWAY_SECONDS: Input should be less"]),
        ({**MEANT, "jwks_url": URL, "jwt_user_claim": ""}, ["JWT_USER_CLAIM: String should have at least 1"]),
    ],
)
def test_what_cannot_be_meant_has_a_line_each(given: dict[str, str], says: list[str]) -> None:
    with pytest.raises(BadSettings) as refused:
        load_settings(**given)
    lines = str(refused.value).splitlines()
    assert len(lines) == len(says)
    for line, beginning in zip(lines, says, strict=True):
        assert line.startswith(f"CUPO_{beginning}")
        assert SECRET not in line
