"""What the settings of who may call may be: the root key, and user tokens alone and beside each other."""

import ipaddress
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr, ValidationInfo

# What CUPO_ROOT_KEY says to let only API keys and user tokens in.
NO_ROOT_KEY = "off"
LEAST_SECRET_BYTES = 32  # RFC 7518, section 3.2
T = TypeVar("T")
# Where the keys come from: one of these, or users have no tokens.
KEY_SETTINGS = ("jwks_url", "jwks_file", "jwt_hs256_secret")


def _safe_to_read(url: str) -> str:
    """Whoever can change what is read there can be every user."""
    address = urlsplit(url)
    if address.username is not None or address.fragment or not address.hostname or address.port == 0:
        raise ValueError("is not the address of a key set, such as https://login.example/jwks.json")
    if address.scheme != "https" and not (address.scheme == "http" and _is_this_machine(address.hostname)):
        raise ValueError(
            "must start with https://; http:// will do for this machine alone, such as 127.0.0.1"
        )
    return url


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _long_enough(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value().encode()) < LEAST_SECRET_BYTES:
        raise ValueError(f"must have at least {LEAST_SECRET_BYTES} bytes; try: openssl rand -hex 32")
    return secret


def _alone(value: T, others: ValidationInfo) -> T:
    """With two sources, the weaker one would decide who is who."""
    set_before = [name for name in KEY_SETTINGS if others.data.get(name) is not None]
    if value is not None and set_before:
        raise ValueError(f"cannot be set beside CUPO_{set_before[0].upper()}")
    return value


def _where_there_are_keys(value: str | None, others: ValidationInfo) -> str | None:
    """An issuer signs for other services too, with the same keys: a token of theirs must not do here."""
    if not others.data.keys() >= set(KEY_SETTINGS):
        return value  # one of them is wrong, which is told
    keys = next((name for name in KEY_SETTINGS if others.data[name] is not None), None)
    if keys and value is None:
        raise ValueError(f"must be set where CUPO_{keys.upper()} is")
    if value is not None and not keys:
        names = ", ".join(f"CUPO_{name.upper()}" for name in KEY_SETTINGS)
        raise ValueError(f"is of no use without one of {names}")
    return value


def is_fit_for_a_key(text: str) -> bool:
    """Long enough to be a secret, and such that an Authorization header carries it unchanged."""
    return 16 <= len(text) <= 256 and text.isascii() and text.isprintable() and text == text.strip()


def _fit(value: SecretStr) -> SecretStr:
    if value.get_secret_value() != NO_ROOT_KEY and not is_fit_for_a_key(value.get_secret_value()):
        raise ValueError("must be 16 to 256 printable ASCII characters, with no space at either end")
    return value


RootKey = Annotated[SecretStr, AfterValidator(_fit)]
JwksUrl = Annotated[str, AfterValidator(_safe_to_read)]
JwksFile = Annotated[str, AfterValidator(_alone)]
Hs256Secret = Annotated[SecretStr, AfterValidator(_long_enough), AfterValidator(_alone)]
ClaimToMeet = Annotated[str | None, AfterValidator(_where_there_are_keys)]
