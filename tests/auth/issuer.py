"""Who makes user tokens: keys, signatures, and a key set that is published over HTTP."""

import json
import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from app.auth.jose import base64url_text
from app.auth.jwt import Rules

ISSUER = "https://login.test/"
AUDIENCE = "https://cupo.test/"
RULES = Rules(ISSUER, AUDIENCE, "sub", leeway_seconds=30)
_ALGORITHMS = get_default_algorithms()


class SigningKey:
    """A key pair and what it signs."""

    def __init__(self, algorithm: str = "ES256", kid: str | None = None) -> None:
        self.algorithm = algorithm
        self.kid = secrets.token_hex(4) if kid is None else kid
        self.private: Any = {
            "RS256": lambda: rsa.generate_private_key(65_537, 2048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }[algorithm]()

    def jwk(self, **members: Any) -> dict[str, Any]:
        """The public part, `members` on top; one that is None is left out."""
        public = _ALGORITHMS[self.algorithm].to_jwk(self.private.public_key(), as_dict=True)
        return {name: value for name, value in ({**public, "kid": self.kid} | members).items() if value}

    def sign(self, message: bytes) -> bytes:
        return bytes(_ALGORITHMS[self.algorithm].sign(message, self.private))

    def token(self, *, header: Any = None, **claims: Any) -> str:
        """A good token, `claims` and `header` on top; a claim that is None is left out."""
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "42", "exp": int(time.time()) + 86_400}
        payload = {name: value for name, value in (good | claims).items() if value is not None}
        head = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT"} | (header or {})
        return self.token_of(json.dumps(head).encode(), json.dumps(payload).encode())

    def token_of(self, header: bytes, payload: bytes) -> str:
        """The bytes as they are, well signed."""
        message = f"{base64url_text(header)}.{base64url_text(payload)}"
        return f"{message}.{base64url_text(self.sign(message.encode()))}"


def key_set(*keys: Any) -> bytes:
    """The public parts of signing keys; whatever else is given stands as it is."""
    return json.dumps({"keys": [key.jwk() if isinstance(key, SigningKey) else key for key in keys]}).encode()


class Publisher:
    """A key set at an address. `answers` counts; while `held`, requests are taken and not answered."""

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.has_been_asked = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        self.has_been_asked.release()
        self.may_answer.wait(30)
        handler.send_response(self.status)
        for name, value in {"Content-Length": str(len(self.document)), **self.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if self.status not in {204, 304}:
            with suppress(OSError):  # who reads may have had enough
                handler.wfile.write(self.document)


@contextmanager
def published(document: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Publisher]:
    publisher = Publisher(document)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            publisher.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        publisher.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/jwks.json"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield publisher
        finally:
            publisher.may_answer.set()
            server.shutdown()
            thread.join()
