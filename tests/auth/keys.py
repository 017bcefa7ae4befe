"""API keys for the tests: made over HTTP, or put into the database as no caller could."""

from dataclasses import dataclass
from typing import Any

import httpx
from sqlalchemy import Engine, text

from app.keys.token import new_token
from tests.services import Service


@dataclass(frozen=True)
class Key:
    id: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def client(self, service: Service) -> httpx.Client:
        return httpx.Client(base_url=service.url, headers=self.headers, timeout=30)


def ask_for_key(api: httpx.Client, *scopes: str, **fields: Any) -> httpx.Response:
    return api.post("/v1/api-keys", json={"name": "a test", "scopes": scopes} | fields)


def make_key(api: httpx.Client, *scopes: str, **fields: Any) -> Key:
    answer = ask_for_key(api, *scopes, **fields)
    assert answer.status_code == 201, answer.text
    return Key(answer.json()["api_key"]["id"], answer.json()["token"])


def put_key(auditor: Engine, scopes: str = "", *, expires_in_seconds: int | None = None) -> Key:
    """A row of its own, made without the service: also one of no scope, or one that ends when a test says."""
    token = new_token()
    query = text(
        "INSERT INTO api_keys (id, name, digest, scopes, created_at, created_by, expires_at)"
        " VALUES (:id, 'put', :digest, :scopes, UTC_TIMESTAMP(6), 'tests',"
        " UTC_TIMESTAMP(6) + INTERVAL :seconds SECOND)"
    )
    values = {"id": token.id, "digest": token.digest, "scopes": scopes, "seconds": expires_in_seconds}
    with auditor.connect() as connection:
        connection.execute(query, values)
    return Key(token.id, token.text)


def revoke_elsewhere(auditor: Engine, key: Key) -> None:
    """As another process would, of which nobody here is told."""
    query = text("UPDATE api_keys SET revoked_at = UTC_TIMESTAMP(6), revoked_by = 'elsewhere' WHERE id = :id")
    with auditor.connect() as connection:
        assert connection.execute(query, {"id": key.id}).rowcount == 1


def last_used(auditor: Engine, key: Key) -> Any:
    with auditor.connect() as connection:
        query = text("SELECT last_used_at FROM api_keys WHERE id = :id")
        return connection.execute(query, {"id": key.id}).scalar_one()
