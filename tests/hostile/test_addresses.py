"""Tricks with addresses, methods and parameters: never another resource than the one written."""

import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from sqlalchemy import Engine

from tests import raw
from tests.problems import assert_problem, refused_quietly
from tests.services import Service

JSON = b"Content-Type: application/json"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@pytest.fixture
def user(service: Service, new_user: Callable[[], int]) -> int:
    """Has one device, `phone`, and nobody else's address may lead to it."""
    user = new_user()
    with service.client() as api:
        assert api.post(f"/v1/users/{user}/devices", json={"device_id": "phone"}).status_code == 201
    return user


@pytest.fixture
def _quiet(service: Service, auditor: Engine, user: int) -> Iterator[None]:
    assert user, "its device is there before rows are counted"
    with refused_quietly(service, auditor):
        yield


@pytest.mark.parametrize(
    "path",
    [
        "/v1/users/{user}%2Fdevices",
        "/v1/users/{user}%2fdevices/phone",
        "/v1%2Fusers/{user}/devices",
        "/v1/users/{user}/devices%2Fphone",
        "/v1/users/{user}/quota%2F",
        "/v1/users/1/../{user}/devices",
        "/v1/users/1/%2e%2e/{user}/devices",
        "/v1/users/1%2F..%2F{user}/devices",
        "/v1/users/./{user}/devices",
        "/v1/users//{user}/devices",
        "//v1/users/{user}/devices",
        "/v1/users/{user}//devices",
        "/v1/users/{user}/devices//phone",
        "/v1/users/{user}/devices/phone/",
        "/v1/users/{user};x/devices",
        "/v1/users/{user}/devices;x/phone",
        "/v1/users/{user}/devices/phone;x",
        "/v1/users/{user}%3B/devices",
        "\\v1\\users\\{user}\\devices",
        "/v1/users\\{user}\\devices",
        "/v1/users/{user}%5Cdevices",
        "/v1/users/{user}%00/devices",
        "/v1/users/{user}/devices%00",
        "/v1/users/{user}/devices/phone%00",
        "/v1/users/{user}%0A/devices",
        "/v1/users/{user}%20/devices",
        "/v1/users/{user}%252Fdevices",
        "/v1/users/1/%252e%252e/{user}/devices",
        "/v1/users/{user}%c0%afdevices",
        "/v1/users/1%c0%ae%c0%ae/{user}/devices",
        "/v1/%e0%81%b5sers/{user}/devices",
        "/v1/users/{user}/devices/pho%6ee%00",
        "/v1/users/{user}/devices%3Flimit=1",
        "/V1/users/{user}/devices",
        "/v1/Users/{user}/devices",
        "/v1/users/0{user}/devices",
        "/v1/users/+{user}/devices",
        "/v1/users/{user}.0/devices",
        "/docs/assets/../../v1/users/{user}/devices",
        "/docs/assets/%2e%2e/%2e%2e/v1/users/{user}/devices",
    ],
)
@pytest.mark.usefixtures("_quiet")
def test_no_other_spelling_leads_to_a_users_devices(service: Service, user: int, path: str) -> None:
    target = path.format(user=user)
    for method in METHODS:
        body = b'{"device_id": "other"}' if method in {"POST", "PUT", "PATCH"} else b""
        answer = raw.send(service, raw.request(method, target, JSON, body=body))
        assert answer.status in {400, 404, 405, 422}, method
        problem = assert_problem(answer, answer.status, answer.json()["code"])
        assert "phone" not in str(problem.get("devices"))


@pytest.mark.parametrize(
    "target",
    [
        "/v1/%75sers/{user}/devices",
        "/v1/users/{user}/devices?",
        "http://elsewhere.example/v1/users/{user}/devices",
        "http://user@[::1]:1/v1/users/{user}/devices",
    ],
)
def test_what_means_the_same_by_the_rfc_is_the_same(service: Service, user: int, target: str) -> None:
    """An encoded letter is that letter (RFC 3986, 6.2.2.2); a whole URL names its path (RFC 9112, 3.2.2)."""
    answer = raw.send(service, raw.request("GET", target.format(user=user)))
    assert [device["device_id"] for device in answer.json()["items"]] == ["phone"]


@pytest.mark.usefixtures("_quiet")
def test_an_asterisk_is_no_address(service: Service) -> None:
    for method in METHODS:
        answer = raw.send(service, raw.request(method, "*"))
        assert assert_problem(answer, 404, "not_found")["instance"]


@pytest.mark.parametrize(
    "header",
    [
        b"X-HTTP-Method-Override: DELETE",
        b"X-HTTP-Method: DELETE",
        b"X-Method-Override: DELETE",
        b"_method: DELETE",
        b"X-Original-URL: /v1/users/%d",
        b"X-Rewrite-URL: /v1/users/%d",
        b"X-Original-Method: DELETE",
        b"X-Forwarded-Prefix: /v1/users/%d",
        b"X-Forwarded-Host: elsewhere.example",
        b"Forwarded: host=elsewhere.example;proto=https",
        b"X-Forwarded-Proto: https",
        b"X-Forwarded-For: 127.0.0.1",
        b"SOAPAction: DELETE",
    ],
)
def test_no_header_makes_another_call_of_a_call(service: Service, user: int, header: bytes) -> None:
    header = header.replace(b"%d", b"%d" % user)
    for method, status in (("GET", 200), ("POST", 200)):
        body = b'{"device_id": "phone"}' if method == "POST" else b""
        answer = raw.send(service, raw.request(method, f"/v1/users/{user}/devices", JSON, header, body=body))
        assert answer.status == status
        assert answer.headers.get("location") is None
        assert "elsewhere" not in repr(answer)
        assert "strict-transport-security" not in answer.headers
    assert devices(service, user) == ["phone"]


@pytest.mark.usefixtures("_quiet")
def test_no_parameter_makes_another_call_of_a_call(service: Service, user: int) -> None:
    for query in ("_method=DELETE", "method=DELETE", "X-HTTP-Method-Override=DELETE", "access_token=x"):
        for method in ("GET", "POST"):
            body = b'{"device_id": "phone"}' if method == "POST" else b""
            target = f"/v1/users/{user}/devices?{query}"
            answer = raw.send(service, raw.request(method, target, JSON, body=body))
            assert_problem(answer, 422, "invalid_request")
    for form in (b"_method=DELETE", b"------x\r\nContent-Disposition: form-data; name=_method\r\n\r\nDELETE"):
        answer = raw.send(
            service, raw.request("POST", f"/v1/users/{user}/devices", b"Content-Type: text/x", body=form)
        )
        assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "path",
    [
        "../../health.py",
        "..%2f..%2fhealth.py",
        "%2e%2e/%2e%2e/health.py",
        "..%5c..%5chealth.py",
        "....//....//health.py",
        "%252e%252e/health.py",
        "..%c0%af..%c0%afhealth.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "swagger-ui.css/../../../health.py",
        "swagger-ui.css%00.js",
        ".",
        "..",
        "",
    ],
)
@pytest.mark.usefixtures("_quiet")
def test_nothing_but_the_assets_is_served_as_an_asset(service: Service, path: str) -> None:
    answer = raw.send(service, raw.request("GET", f"/docs/assets/{path}", key=None))
    assert_problem(answer, 404, "not_found")


HUGE = {
    "a huge exponent": b'{"metadata": {"a": 1e400000}}',
    "a huge exponent for an integer": b'{"lease_seconds": 1e400000}',
    "a tiny exponent": b'{"lease_seconds": 1e-400000}',
    "a number of 4,000 digits": b'{"lease_seconds": ' + b"9" * 4_000 + b"}",
    "a number of 60,000 digits": b'{"lease_seconds": ' + b"9" * 60_000 + b"}",
    "a fraction of 60,000 digits": b'{"lease_seconds": 0.' + b"9" * 60_000 + b"}",
    "an exponent of 60,000 digits": b'{"lease_seconds": 1e' + b"9" * 60_000 + b"}",
    "6,000 keys": b"{%s}" % b",".join(b'"%x":1' % number for number in range(6_000)),
    "6,000 keys of the metadata": b'{"metadata":{%s}}' % b",".join(b'"%x":1' % n for n in range(6_000)),
    "6,000 times the same key": b"{%s}" % b",".join([b'"a":1'] * 6_000),
    "keys that are one hash in other languages": b"{%s}"
    % b",".join(b'"%s":1' % (b"Aa" * (n % 8) + b"BB" * (n // 8 % 8) + b"%x" % n) for n in range(2_900)),
    "a name of 60,000 letters": b'{"name": "' + b"a" * 60_000 + b'"}',
    "a name of 10,000 escapes": b'{"name": "' + b"\\u0061" * 10_000 + b'"}',
    "a name of 30,000 accents": ('{"name": "' + "\u0301" * 30_000 + '"}').encode(),
    "a platform of 60,000 letters": b'{"platform": "' + b"a" * 60_000 + b'"}',
    "60,000 brackets": b"[" * 60_000,
    "30,000 pairs of brackets": b"[" * 30_000 + b"]" * 30_000,
    "10,000 objects in each other": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "900 lists in each other": b'{"metadata": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
}


@pytest.mark.parametrize("body", HUGE.values(), ids=HUGE.keys())
@pytest.mark.usefixtures("_quiet")
def test_no_body_costs_much_more_than_its_size(service: Service, user: int, body: bytes) -> None:
    assert len(body) < 65_536
    began = time.monotonic()
    answer = raw.send(service, raw.request("POST", f"/v1/users/{user}/devices", JSON, body=body))
    assert time.monotonic() - began < 2
    assert answer.status in {400, 422}
    assert_problem(answer, answer.status, answer.json()["code"])
    assert len(answer.body) < 20_000, "an answer is no echo, and no amplifier"
    assert httpx.get(f"{service.url}/livez").status_code == 200


def devices(service: Service, user: int) -> list[str]:
    with service.client() as api:
        return [device["device_id"] for device in api.get(f"/v1/users/{user}/devices").json()["items"]]
