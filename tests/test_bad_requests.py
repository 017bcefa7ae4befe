"""Whatever is wrong with a request beside its body: address, method, headers, key."""

from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import Engine

from tests import raw
from tests.problems import assert_problem, refused_quietly
from tests.services import ROOT_KEY, Service

PATH = "/v1/users/77/devices"
JSON = b"Content-Type: application/json"


@pytest.fixture(autouse=True, scope="module")
def _refused_quietly(service: Service, auditor: Engine) -> Iterator[None]:
    with refused_quietly(service, auditor):
        yield


@pytest.mark.parametrize(
    "user",
    [
        "0",
        "-1",
        "+1",
        "042",
        "00",
        "18446744073709551616",
        "9" * 400,
        "1e3",
        "1.0",
        "0x2a",
        "abc",
        "me",
        "%20",
        "42%20",
        "42%0A",
        "%00",
        "%FF",
        "%D9%A1",
        "%C2%B2",
        "1_000",
    ],
)
def test_a_user_id_that_is_none_is_422_on_every_call(service: Service, user: str) -> None:
    for method, path, body in (
        ("POST", "/devices", b'{"device_id": "a"}'),
        ("GET", "/devices", b""),
        ("DELETE", "/devices", b""),
        ("GET", "/devices/a", b""),
        ("PATCH", "/devices/a", b"{}"),
        ("DELETE", "/devices/a", b""),
        ("POST", "/devices/a/allow", b""),
        ("POST", "/devices/a/heartbeat", b""),
        ("POST", "/devices/a/transfer", b'{"to_user_id": "78"}'),
        ("GET", "/quota", b""),
        ("PUT", "/quota", b'{"limit": 1}'),
        ("DELETE", "/quota", b""),
        ("GET", "/events", b""),
        ("DELETE", "", b""),
    ):
        answer = raw.send(service, raw.request(method, f"/v1/users/{user}{path}", JSON, body=body))
        problem = assert_problem(answer, 422, "invalid_request")
        assert [(error["location"], error["pointer"]) for error in problem["errors"]] == [
            ("path", "#/user_id")
        ]
        assert ("user's own token" if user == "me" else "18446744073709551615") in problem["errors"][0][
            "detail"
        ]


@pytest.mark.parametrize(
    "device", [".", "..", "%2E", "%2e%2e", "with%20space", "a" * 129, "%00", "%FF", "a%0A", "%C3%A4"]
)
def test_a_device_id_that_is_none_is_422(service: Service, device: str) -> None:
    for method, path, body in (
        ("GET", "", b""),
        ("DELETE", "", b""),
        ("PATCH", "", b"{}"),
        ("POST", "/allow", b""),
        ("POST", "/heartbeat", b""),
        ("POST", "/transfer", b'{"to_user_id": "78"}'),
    ):
        answer = raw.send(service, raw.request(method, f"{PATH}/{device}{path}", JSON, body=body))
        problem = assert_problem(answer, 422, "invalid_request")
        assert [(error["location"], error["pointer"]) for error in problem["errors"]] == [
            ("path", "#/device_id")
        ]


@pytest.mark.parametrize(
    "if_match", [b"", b"1", b'"1', b"'1'", b'*, "1"', b'"1" "2"', b"\xff", b",", b'w/"1"']
)
def test_an_if_match_that_is_none_is_422_and_changes_nothing(service: Service, if_match: bytes) -> None:
    for method, path, body in (
        ("DELETE", f"{PATH}/a", b""),
        ("PATCH", f"{PATH}/a", b"{}"),
        ("PUT", "/v1/users/77/quota", b'{"limit": 1}'),
        ("DELETE", "/v1/users/77/quota", b""),
    ):
        answer = raw.send(service, raw.request(method, path, JSON, b"If-Match: " + if_match, body=body))
        problem = assert_problem(answer, 422, "invalid_request")
        assert [(error["location"], error["pointer"]) for error in problem["errors"]] == [
            ("header", "#/if-match")
        ]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/users/77", {"DELETE"}),
        (PATH, {"DELETE", "GET", "HEAD", "POST"}),
        (f"{PATH}/a", {"DELETE", "GET", "HEAD", "PATCH"}),
        (f"{PATH}/a/allow", {"POST"}),
        (f"{PATH}/a/heartbeat", {"POST"}),
        (f"{PATH}/a/transfer", {"POST"}),
        ("/v1/users/77/quota", {"DELETE", "GET", "HEAD", "PUT"}),
        ("/v1/users/77/events", {"GET", "HEAD"}),
        ("/v1/webhook-endpoints", {"GET", "HEAD", "POST"}),
        ("/v1/webhook-endpoints/1", {"DELETE", "GET", "HEAD", "PATCH"}),
        ("/v1/webhook-endpoints/1/rotate-secret", {"POST"}),
        ("/v1/webhook-endpoints/1/test", {"POST"}),
        ("/v1/webhook-deliveries", {"GET", "HEAD"}),
        ("/v1/webhook-deliveries/1", {"GET", "HEAD"}),
        ("/v1/webhook-deliveries/1/retry", {"POST"}),
        ("/v1/webhook-deliveries/1/discard", {"POST"}),
        ("/livez", {"GET", "HEAD"}),
        ("/readyz", {"GET", "HEAD"}),
        ("/docs", {"GET", "HEAD"}),
        ("/docs/assets/swagger-ui.css", {"GET", "HEAD"}),
        ("/openapi.json", {"GET", "HEAD"}),
        ("/problems/contention", {"GET", "HEAD"}),
    ],
)
def test_a_method_that_is_not_allowed_is_405_with_all_that_are(
    service: Service, path: str, allowed: set[str]
) -> None:
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - allowed:
        answer = raw.send(service, raw.request(method, path))
        assert answer.status == 405
        if method != "HEAD":
            assert_problem(answer, 405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/users",
        "/v1/users/77/",
        "/v1/users/77/quota/",
        f"{PATH}/a/block",
        f"{PATH}/",
        f"{PATH}/a/",
        f"{PATH}/a%2Fb",
        f"/{PATH}",
        "/V1/users/77/devices",
        "/docs/",
        "/docs/assets/",
        "/docs/assets/none",
        "/docs/assets/%2e%2e/%2e%2e/health.py",
        "/docs/assets/..%2f..%2fhealth.py",
        "/docs/assets/%00",
        "/docs/assets/" + "a" * 4000,
        "/problems/none",
        "/redoc",
        "/%F0%9F%98%80",
        "/%00",
        "/%FF",
        "/a%22%3Cb",
    ],
)
def test_an_address_that_leads_nowhere_is_404(service: Service, path: str) -> None:
    problem = assert_problem(raw.send(service, raw.request("GET", path)), 404, "not_found")
    assert problem["instance"].isascii()
    assert problem["instance"].isprintable()


@pytest.mark.parametrize("host", [b"Host: [::1", b"Host: \xff", b"Host: a b", b"Host: ", b"Host: x/../y?z#"])
def test_no_host_header_disturbs_an_answer(service: Service, host: bytes) -> None:
    for path, status in (("/v1/users/77/quota", 200), ("/none", 404)):
        request = raw.request("GET", path).replace(b"Host: cupo.test", host)
        assert raw.send(service, request).status == status


CREDENTIALS = [
    b"",
    b"Bearer",
    b"Bearer ",
    b"Bearer wrong",
    b"Bearer " + ROOT_KEY.upper().encode(),
    b"Bearer " + ROOT_KEY[:-1].encode(),
    b"Bearer " + ROOT_KEY.encode() + b"x",
    b"Bearer \xe9\xff",
    "Bearer ключ".encode(),
    b"Bearer " + b"x" * 8000,
    b"Basic " + ROOT_KEY.encode(),
    b"Token " + ROOT_KEY.encode(),
    ROOT_KEY.encode(),
    b"\xff",
]


@pytest.mark.parametrize("credentials", CREDENTIALS, ids=lambda value: repr(value[:24]))
def test_a_call_without_the_key_is_401_whatever_else_is_wrong_with_it(
    service: Service, credentials: bytes
) -> None:
    is_one = credentials.startswith(b"Bearer ") and credentials != b"Bearer "
    challenge = 'Bearer realm="cupo"' + (', error="invalid_token"' if is_one else "")  # RFC 6750, section 3.1
    for method, path, header, body in (
        ("GET", PATH, JSON, b""),
        ("GET", "/v1/users/0/quota", JSON, b""),
        ("DELETE", f"{PATH}/a", b"If-Match: none", b""),
        ("POST", PATH, JSON, b'{"device_id": "a"}'),
        ("POST", PATH, JSON, b'{"device_id": '),
        ("POST", PATH, JSON, b'{"device_id": " "}'),
        ("POST", PATH, b"Content-Type: text/plain", b"a"),
    ):
        authorization = b"Authorization: " + credentials
        answer = raw.send(service, raw.request(method, path, header, authorization, body=body, key=None))
        assert_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == challenge


def test_no_key_at_all_is_401(service: Service) -> None:
    answer = raw.send(service, raw.request("GET", PATH, key=None))
    assert_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == 'Bearer realm="cupo"'


def test_the_name_of_the_scheme_is_read_in_any_case(service: Service) -> None:
    for scheme in (b"Bearer", b"bearer", b"BEARER"):
        header = b"Authorization: " + scheme + b" " + ROOT_KEY.encode()
        assert raw.send(service, raw.request("GET", PATH, header, key=None)).status == 200


def test_health_and_docs_need_no_key(service: Service) -> None:
    for path in ("/livez", "/readyz", "/docs", "/openapi.json", "/problems/contention"):
        assert httpx.get(service.url + path).status_code == 200
