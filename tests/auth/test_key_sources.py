"""One reading of a key set: bounded in time and size, from the place that was set and no other."""

import datetime
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from urllib3.exceptions import HTTPError

from app.auth.jwks import parse_key_set
from app.auth.key_sources import Unreadable, key_source, read_url
from app.auth.user_tokens import user_tokens
from app.settings import BadSettings, load_settings
from tests.auth.issuer import AUDIENCE, ISSUER, SigningKey, key_set, published
from tests.test_settings import SERVING, run

KEY = SigningKey()
MEANT = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


def test_what_is_published_is_read_as_it_is() -> None:
    with published(key_set(KEY)) as publisher:
        assert read_url(publisher.url) == key_set(KEY)


@pytest.mark.parametrize("status", [301, 302, 307, 401, 404, 500, 204])
def test_another_answer_than_200_is_none_and_no_redirect_is_followed(status: int) -> None:
    with published(key_set(KEY)) as other, published(key_set(KEY)) as publisher:
        publisher.status = status
        publisher.headers = {"Location": other.url}
        with pytest.raises(ValueError, match=str(status)):
            read_url(publisher.url)
        assert other.asked == 0


def test_a_document_that_is_too_large_is_not_read_to_its_end() -> None:
    with published(b" " * 10_000_000) as publisher, pytest.raises(ValueError, match="more than"):
        read_url(publisher.url)


def test_nothing_is_decompressed() -> None:
    with published(b"\x1f\x8b not unpacked") as publisher:
        publisher.headers = {"Content-Encoding": "gzip"}
        assert read_url(publisher.url) == publisher.document


def test_a_document_that_ends_early_is_none() -> None:
    with published(key_set(KEY)) as publisher:
        publisher.headers = {"Content-Length": "5000", "Connection": "close"}
        with pytest.raises((OSError, HTTPError)):
            read_url(publisher.url, within_seconds=1)


@contextmanager
def dripping(beginning: bytes, drop: bytes) -> Iterator[str]:
    """A server that sends a drop again and again, well within any time-out of a single read; or never."""
    ended = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            try:
                connection.sendall(beginning)
                while drop and not ended.wait(0.02):
                    connection.sendall(drop)
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    ("beginning", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
    ],
    ids=["body", "chunks", "header"],
)
def test_a_server_that_drips_is_cut_off(beginning: bytes, drop: bytes) -> None:
    with dripping(beginning, drop) as url:
        began = time.monotonic()
        with pytest.raises((OSError, HTTPError, ValueError)):
            parse_key_set(read_url(url, within_seconds=0.3))
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 yes\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 1_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"\x16\x03\x01\x00\xff" * 100,
    ],
    ids=lambda answer: repr(answer[:40]),
)
def test_whatever_answers_the_reading_fails_and_nothing_else_does(answer: bytes) -> None:
    with dripping(answer, b"") as url:
        source = key_source(load_settings(jwks_url=url, **MEANT))
        assert source is not None
        with pytest.raises(Unreadable, match=url):
            source[1]()


def certificate(folder: Path) -> tuple[Path, Path]:
    """One that vouches for itself, at 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cupo test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folder / "certificate.pem", folder / "key.pem"


def test_https_is_verified(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its_certificate, its_key = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(its_certificate, its_key)
    with published(key_set(KEY), context) as publisher:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            read_url(publisher.url)
        assert publisher.asked == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(its_certificate))
        assert read_url(publisher.url) == key_set(KEY)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            read_url(publisher.url.replace("127.0.0.1", "localhost"))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (None, "No such file"),
        (b"", "Expecting value"),
        (b'{"keys": []}', "has no keys"),
        (key_set(KEY.jwk(use="enc")), "is not for signatures"),
        (b" " * 300_000, "more than"),
    ],
)
def test_a_file_that_is_no_good_stops_the_start(folder: Path, document: bytes | None, says: str) -> None:
    file = folder / "jwks.json"
    if document is not None:
        file.write_bytes(document)
    with pytest.raises(BadSettings) as refused:
        user_tokens(load_settings(jwks_file=str(file), **MEANT))
    assert str(refused.value).startswith("CUPO_JWKS_FILE: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_address_is_not_asked_before_the_service_runs() -> None:
    with published(b"") as publisher:
        assert user_tokens(load_settings(jwks_url=publisher.url, **MEANT)) is not None
        assert publisher.asked == 0


@pytest.mark.parametrize(("command", "status"), [*SERVING, (("app", "openapi"), 1)])
def test_every_command_that_makes_the_service_says_so_in_one_line(
    folder: Path, command: tuple[str, ...], status: int
) -> None:
    issuer, audience = MEANT.values()
    ended = run(
        folder, *command, CUPO_JWKS_FILE="none.json", CUPO_JWT_ISSUER=issuer, CUPO_JWT_AUDIENCE=audience
    )
    assert ended.returncode == status
    assert ended.stderr == "cupo: CUPO_JWKS_FILE: none.json: No such file or directory\n"
