"""No way in: each route under `/v1` has its scope in one table, and refuses whoever lacks it."""

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from sqlalchemy import Engine

from app.auth.scopes import ACCESS, SCOPES, Scope
from app.http import GuardedRoute
from app.main import create_app
from app.settings import load_settings
from tests.auth.keys import Key, put_key
from tests.problems import problem_of
from tests.services import ROOT_KEY, Service

VALUES = {
    "user_id": "77",
    "device_id": "a-device",
    "key_id": "abcdefghijkl",
    "endpoint_id": "7",
    "delivery_id": "77",
}


def all_routes() -> Iterator[tuple[APIRoute, str, str, str]]:
    """Each route of the service that is not mounted: itself, its name in ACCESS, its method, its path."""
    for route in iter_route_contexts(create_app(load_settings(root_key=ROOT_KEY)).routes):
        original = route.original_route
        if isinstance(original, APIRoute):
            for method in sorted(route.methods or ()):
                yield original, original.operation_id or original.name, method, route.path or ""


CALLS = [
    pytest.param(method, path, id=name) for _, name, method, path in all_routes() if path.startswith("/v1")
]


def call(client: httpx.Client, method: str, path: str) -> httpx.Response:
    """A call that changes nothing, whoever makes it: it has a parameter that no route knows."""
    return client.request(method, re.sub(r"{(\w+)}", lambda name: VALUES[name[1]], path), params={"no": "1"})


def test_every_route_under_v1_is_guarded_and_in_the_table_and_the_table_names_no_other() -> None:
    routes = [(route, name) for route, name, _, path in all_routes() if path.startswith("/v1")]
    assert sorted(name for _, name in routes) == sorted(ACCESS)
    assert [name for route, name in routes if not isinstance(route, GuardedRoute)] == []
    assert [path for _, _, _, path in all_routes() if not path.startswith("/v1")] == [
        *("/livez", "/readyz", "/metrics", "/docs", "/problems/{code}")
    ]


def test_a_route_without_an_entry_stops_the_start() -> None:
    with pytest.raises(KeyError, match="nobody_said_who"):
        GuardedRoute("/v1/x", lambda: None, name="nobody_said_who").get_route_handler()


@pytest.fixture(scope="module")
def keys(auditor: Engine) -> dict[str, Key]:
    """A key of no scope by the name of "", and one of each."""
    return {scope: put_key(auditor, scope) for scope in ("", *SCOPES)}


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_call_without_credentials_is_401_and_one_by_a_key_of_no_scope_403(
    service: Service, keys: dict[str, Key], method: str, path: str
) -> None:
    with httpx.Client(base_url=service.url) as stranger:
        answer = call(stranger, method, path)
        problem_of(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == 'Bearer realm="cupo"'
    with keys[""].client(service) as client:
        problem_of(call(client, method, path), 403, "forbidden")


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_opens_its_own_calls_and_no_other(
    service: Service, keys: dict[str, Key], scope: Scope
) -> None:
    with keys[scope].client(service) as client:
        for _, name, method, path in all_routes():
            if path.startswith("/v1"):
                answer = call(client, method, path)
                # 422: past the guard, where the parameter is refused.
                expected = 422 if ACCESS[name].scope == scope else 403
                assert answer.status_code == expected, name
                if expected == 403:
                    challenge = (
                        f'Bearer realm="cupo", error="insufficient_scope", scope="{ACCESS[name].scope}"'
                    )
                    assert answer.headers["www-authenticate"] == challenge


def test_the_root_key_opens_all(api: httpx.Client) -> None:
    for _, _, method, path in all_routes():
        if path.startswith("/v1"):
            assert call(api, method, path).status_code == 422
