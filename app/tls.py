"""TLS to the database: contexts are made once, since each reads certificates from files."""

import functools
import ssl
from collections.abc import Callable
from typing import Any, NoReturn

SYSTEM = "system"


@functools.cache
def unverified_tls() -> ssl.SSLContext:
    """Keeps out who only listens, not who answers in the server's place."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@functools.cache
def verified_tls(ca_file: str, certificate_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """Connects only to a server of whose name an authority in `ca_file` vouches, or one of the machine's own.

    Raises ValueError where a file cannot be used; its text is for the person who named it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file == SYSTEM:
        context.load_default_certs()
    else:
        _load(context.load_verify_locations, ca_file)
    if certificate_file is not None:
        # Without a way to ask for a passphrase, OpenSSL would ask the terminal and wait.
        _load(context.load_cert_chain, certificate_file, key_file, _refuse_passphrase)
    return context


def _load(load: Callable[..., None], *files: Any) -> None:
    try:
        load(*files)
    except ssl.SSLError as error:
        raise ValueError(f"cannot be used: {words_of(error.reason) or 'it is not as PEM has it'}") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def _refuse_passphrase() -> NoReturn:
    raise ValueError("cannot be used: its key is under a passphrase")


def words_of(reason: str | None) -> str:
    """OpenSSL's name of an error, such as KEY_VALUES_MISMATCH, as one would say it."""
    return (reason or "").lower().replace("_", " ")
