"""What every answer's headers say, to browsers, caches and pages of other origins."""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from loadtest.ports import LOOPBACK
from tests import raw
from tests.services import ROOT_KEY, Service, running_service

JSON = b"Content-Type: application/json"
ORIGIN = "https://app.example"
TLS = b"X-Forwarded-Proto: https"
ALWAYS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@pytest.fixture(scope="module")
def behind_proxy(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Trusts whoever is on this machine, and lets two origins call."""
    with running_service(
        database_url,
        tmp_path_factory.mktemp("proxied"),
        trusted_proxies=f"10.0.0.0/8, {LOOPBACK}",
        cors_origins=f"{ORIGIN},http://localhost:3000",
        head_timeout_seconds=0.5,
    ) as running:
        yield running


def answers_of_every_kind(service: Service, user: int, *headers: bytes) -> dict[int, raw.Answer]:
    """One answer of each status that can be had."""
    path = f"/v1/users/{user}/devices"
    asked = [
        raw.request("POST", path, JSON, *headers, body=b'{"device_id": "a"}'),
        raw.request("GET", path, *headers),
        raw.request("DELETE", f"{path}/a", *headers),
        raw.request("GET", path, *headers, key=None),
        raw.request("GET", f"{path}/none", *headers),
        raw.request("PUT", path, *headers),
        raw.request("POST", path, JSON, b"Content-Length: 70000", *headers),
        raw.request("POST", path, b"Content-Type: text/plain", *headers, body=b"a"),
        raw.request("POST", path, JSON, *headers, body=b'{"name": 1}'),
        raw.request("GET", path, *headers, b"X-None: " + b"a" * 16_400),
        raw.request("GET", path, *headers, b"X-None: a\x00b"),
    ]
    return {answer.status: answer for answer in (raw.send(service, request) for request in asked)}


def test_every_answer_of_the_api_is_safe_in_a_browser_and_in_no_cache(
    service: Service, new_user: Callable[[], int]
) -> None:
    answers = answers_of_every_kind(service, new_user())
    assert set(answers) == {200, 201, 204, 400, 401, 404, 405, 413, 415, 422, 431}
    for status, answer in answers.items():
        assert answer.headers.items() >= ALWAYS.items(), status
        assert answer.headers["cache-control"] == "no-store", status
        assert answer.headers["x-request-id"], status
        assert "server" not in answer.headers, status
        assert "strict-transport-security" not in answer.headers, status
        assert not any(name.startswith("access-control-") for name in answer.headers), status


def test_an_answer_that_came_by_tls_has_browsers_keep_to_it(
    behind_proxy: Service, new_user: Callable[[], int]
) -> None:
    answers = answers_of_every_kind(behind_proxy, new_user(), TLS)
    assert set(answers) == {200, 201, 204, 400, 401, 404, 405, 413, 415, 422, 431}
    for status, answer in answers.items():
        assert answer.headers["strict-transport-security"] == "max-age=31536000", status
    assert "strict-transport-security" not in raw.send(behind_proxy, raw.request("GET", "/livez")).headers


def test_a_client_that_is_no_proxy_forges_nothing(service: Service, new_user: Callable[[], int]) -> None:
    forged = (TLS, b"X-Forwarded-For: 203.0.113.9", b"Forwarded: for=203.0.113.9;proto=https")
    for answer in answers_of_every_kind(service, new_user(), *forged).values():
        assert "strict-transport-security" not in answer.headers
        assert "203.0.113.9" not in repr(answer)
    assert "203.0.113.9" not in service.logged()


def test_of_a_proxys_list_of_clients_only_what_the_proxy_has_seen_is_believed(
    database_url: str, folder: Path
) -> None:
    """The last address that is no proxy's; whatever stands before it is the client's own tale."""
    with running_service(database_url, folder, trusted_proxies=f"{LOOPBACK},10.0.0.0/8") as service:
        chain = b"X-Forwarded-For: 198.51.100.7, 203.0.113.9, 10.1.2.3"
        assert raw.send(service, raw.request("GET", "/none", chain, b"X: a\x00b")).status == 400
        assert raw.send(service, raw.request("GET", "/none", chain)).status == 404
    log = service.log.read_text()
    assert log.count('"client": "203.0.113.9"') == 2
    assert "198.51.100.7" not in log


def test_a_fault_of_the_service_is_a_500_with_the_headers_of_all(
    database_url: str, folder: Path, new_user: Callable[[], int]
) -> None:
    with running_service(
        database_url, folder, application="tests.hostile.broken:app", cors_origins=ORIGIN
    ) as service:
        answer = httpx.get(
            f"{service.url}/v1/users/{new_user()}/devices", headers={**service.headers, "Origin": ORIGIN}
        )
    log = service.log.read_text()
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert answer.headers.items() >= {**ALWAYS, "cache-control": "no-store"}.items()
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "a fault of the service" not in answer.text
    assert answer.json()["request_id"] in log


def test_the_explorer_runs_its_own_scripts_only_and_in_no_frame(service: Service) -> None:
    page = httpx.get(f"{service.url}/docs")
    policy = page.headers["content-security-policy"]
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "connect-src 'self'"):
        assert rule in policy.split("; ")
    scripts = next(rule for rule in policy.split("; ") if rule.startswith("script-src "))
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    ]
    assert scripts == " ".join(["script-src 'self'", *(f"'sha256-{digest}'" for digest in hashes)])
    for path in ("/docs", "/docs/assets/swagger-ui.css", "/openapi.json", "/livez"):
        assert httpx.get(service.url + path).headers["x-content-type-options"] == "nosniff"


def test_no_page_of_another_origin_may_call_unless_it_is_listed(service: Service) -> None:
    for method, asked in (("GET", {}), ("OPTIONS", {"Access-Control-Request-Method": "GET"})):
        answer = httpx.request(method, f"{service.url}/v1/users/1/quota", headers={"Origin": ORIGIN, **asked})
        assert answer.status_code == {"GET": 401, "OPTIONS": 405}[method]
        assert not any(name.startswith("access-control-") for name in answer.headers)


@pytest.mark.parametrize("origin", ["https://app.example", "http://localhost:3000"])
def test_a_page_of_a_listed_origin_may_make_every_call_and_read_what_it_needs(
    behind_proxy: Service, origin: str
) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        preflight = httpx.options(
            f"{behind_proxy.url}/v1/users/1/devices",
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": method,
                "Access-Control-Request-Headers": "authorization, content-type, idempotency-key, if-match",
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == origin
        assert method in preflight.headers["access-control-allow-methods"].split(", ")
        assert "access-control-allow-credentials" not in preflight.headers
    for key in (ROOT_KEY, "wrong"):
        answer = httpx.get(
            f"{behind_proxy.url}/v1/users/1/quota",
            headers={"Origin": origin, "Authorization": f"Bearer {key}"},
        )
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["vary"] == "Origin"
        exposed = set(answer.headers["access-control-expose-headers"].split(", "))
        assert exposed == {"ETag", "Idempotent-Replayed", "Location", "Retry-After", "X-Request-ID"}
    refused = raw.send(
        behind_proxy, raw.request("GET", "/livez", b"Origin: " + origin.encode(), b"X: " + b"a" * 20_000)
    )
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (431, origin)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://app.example",
        "https://app.example.evil.example",
        "https://app.example:444",
        "https://APP.example",
        "null",
        "*",
        "",
    ],
)
def test_a_page_of_another_origin_than_those_listed_may_not(behind_proxy: Service, origin: str) -> None:
    for method in ("GET", "OPTIONS"):
        answer = httpx.request(
            method,
            f"{behind_proxy.url}/v1/users/1/quota",
            headers={"Origin": origin, "Access-Control-Request-Method": "PUT"},
        )
        assert not any(name.startswith("access-control-") for name in answer.headers)


def test_every_origin_can_be_listed_and_every_process_has_the_same_bounds(
    database_url: str, folder: Path
) -> None:
    with running_service(database_url, folder, cors_origins="*", workers=2) as service:
        answer = httpx.get(f"{service.url}/livez", headers={"Origin": "https://any.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers
        # Each of several processes has the same bounds.
        for _ in range(20):
            refused = raw.send(service, b"GET /livez HTTP/1.1\r\n\r\n")
            assert (refused.status, refused.json()["code"]) == (400, "malformed_request")
