"""Whatever is wrong with a body: a problem that says what and where, nothing written, never a 500."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from tests import raw
from tests.problems import assert_problem, refused_quietly
from tests.services import ROOT_KEY, Service

PATH = "/v1/users/77/devices"
JSON = b"Content-Type: application/json"
MOST_BODY_BYTES = 65_536


@pytest.fixture(autouse=True, scope="module")
def _refused_quietly(service: Service, auditor: Engine) -> Iterator[None]:
    with refused_quietly(service, auditor):
        yield


def post(service: Service, body: bytes, *headers: bytes, key: str | None = ROOT_KEY) -> raw.Answer:
    return raw.send(service, raw.request("POST", PATH, *(headers or (JSON,)), body=body, key=key))


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"name": 1}, ["#/name"]),
        ({"name": ["x"]}, ["#/name"]),
        ({"name": True}, ["#/name"]),
        ({"name": "x" * 101}, ["#/name"]),
        ({"name": "👍" * 101}, ["#/name"]),
        ({"name": "nul\x00"}, ["#/name"]),
        ({"name": "tab\t"}, ["#/name"]),
        ({"name": "line\nbreak"}, ["#/name"]),
        ({"name": "\x7f"}, ["#/name"]),
        ({"name": "\x85"}, ["#/name"]),
        ({"name": "\ud800"}, ["#/name"]),
        ({"name": "\udc00\ud800"}, ["#/name"]),
        ({"model": "x" * 65}, ["#/model"]),
        ({"os_version": 17}, ["#/os_version"]),
        ({"app_version": "\x1b[31m"}, ["#/app_version"]),
        ({"platform": "nokia"}, ["#/platform"]),
        ({"platform": "iOS"}, ["#/platform"]),
        ({"platform": ""}, ["#/platform"]),
        ({"device_id": 1}, ["#/device_id"]),
        ({"device_id": ""}, ["#/device_id"]),
        ({"device_id": "with space"}, ["#/device_id"]),
        ({"device_id": "a" * 129}, ["#/device_id"]),
        ({"device_id": "."}, ["#/device_id"]),
        ({"device_id": ".."}, ["#/device_id"]),
        ({"device_id": "a\n"}, ["#/device_id"]),
        ({"device_id": "a/b"}, ["#/device_id"]),
        ({"device_id": "ä"}, ["#/device_id"]),
        ({"device_id": "a\x00"}, ["#/device_id"]),
        ({"device_id": "%61"}, ["#/device_id"]),
        ({"nmae": "typo"}, ["#/nmae"]),
        ({"user_id": "77"}, ["#/user_id"]),
        ({"lease_seconds": 59}, ["#/lease_seconds"]),
        ({"lease_seconds": 31_536_001}, ["#/lease_seconds"]),
        ({"lease_seconds": -1}, ["#/lease_seconds"]),
        ({"lease_seconds": 10**400}, ["#/lease_seconds"]),
        ({"lease_seconds": 60.5}, ["#/lease_seconds"]),
        ({"lease_seconds": "60"}, ["#/lease_seconds"]),
        ({"lease_seconds": True}, ["#/lease_seconds"]),
        ({"lease_seconds": []}, ["#/lease_seconds"]),
        ({"replace_device_id": ".."}, ["#/replace_device_id"]),
        ({"replace_device_id": 1}, ["#/replace_device_id"]),
        ({"on_limit": "evict"}, ["#/on_limit"]),
        ({"on_limit": "Reject"}, ["#/on_limit"]),
        ({"on_limit": None}, ["#/on_limit"]),
        ({"on_limit": True}, ["#/on_limit"]),
        ({"registered_at": "2026-01-02T03:04:05Z"}, ["#/registered_at"]),
        ({"last_seen_at": "2026-01-02T03:04:05Z"}, ["#/last_seen_at"]),
        ({"expires_at": "2026-01-02T03:04:05Z"}, ["#/expires_at"]),
        ({"revision": 1}, ["#/revision"]),
        ({"a/b~c d": 1}, ["#/a~1b~0c%20d"]),
        ({"ключ": 1}, ["#/%D0%BA%D0%BB%D1%8E%D1%87"]),
        ({"name": 1, "model": 2, "x": 3}, ["#/model", "#/name", "#/x"]),
        ({"metadata": []}, ["#/metadata"]),
        ({"metadata": "{}"}, ["#/metadata"]),
        ({"metadata": {"nested": {}}}, ["#/metadata/nested"]),
        ({"metadata": {"list": [1]}}, ["#/metadata/list"]),
        ({"metadata": {"": 1}}, ["#/metadata/"]),
        ({"metadata": {"k" * 41: 1}}, ["#/metadata/" + "k" * 41]),
        ({"metadata": {"a\nb": 1}}, ["#/metadata/a%0Ab"]),
        ({"metadata": {"a": "\ud800"}}, ["#/metadata/a"]),
        ({"metadata": {"\ud800": "a"}}, ["#/metadata/" + "%EF%BF%BD" * 3]),
        ({"metadata": {f"k{one}": one for one in range(33)}}, ["#/metadata"]),
        ({"metadata": {"a": "x" * 4089}}, ["#/metadata"]),
        ({"metadata": {"a": 10**309}}, ["#/metadata/a"]),
        ({"metadata": {"a": -(10**4000)}}, ["#/metadata/a"]),
    ],
)
def test_a_wrong_value_is_422_and_named_by_its_pointer(
    service: Service, body: dict[str, Any], pointers: list[str]
) -> None:
    answer = post(service, json.dumps(body).encode())
    problem = assert_problem(answer, 422, "invalid_request")
    assert sorted(error["pointer"] for error in problem["errors"]) == pointers
    assert {error["location"] for error in problem["errors"]} == {"body"}
    for error in problem["errors"]:
        assert "Value error" not in error["detail"]
        assert "pattern" not in error["detail"]


@pytest.mark.parametrize("body", [b"null", b"[]", b"[{}]", b'"text"', b"1", b"true"])
def test_json_that_is_no_object_is_422_at_the_root(service: Service, body: bytes) -> None:
    problem = assert_problem(post(service, body), 422, "invalid_request")
    assert problem["errors"] == [{"detail": "must be a JSON object", "location": "body", "pointer": "#"}]


def test_a_number_above_every_double_is_422(service: Service) -> None:
    problem = assert_problem(post(service, b'{"metadata": {"a": 1e400}}'), 422, "invalid_request")
    assert [error["pointer"] for error in problem["errors"]] == ["#/metadata/a"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"name":', "line 1 column 9"),
        (b"{'name': 1}", "line 1 column 2"),
        (b'{"name": "a",}', "line 1 column"),
        (b"{} {}", "Extra data"),
        (b" ", "Expecting value"),
        (b"\x00", "Expecting value"),
        (b'{"name": "raw \x01"}', "Invalid control character"),
        (b'{"name": "\\ud8"}', "escape"),
        (b'{"name": NaN}', "NaN"),
        (b'{"metadata": {"a": Infinity}}', "Infinity"),
        (b'{"metadata": {"a": -Infinity}}', "-Infinity"),
        (b'{"name": "a", "name": "b"}', "twice"),
        (b'{"metadata": {"a": 1, "\\u0061": 2}}', "twice"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b'{"name": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"name": "\xc0\xaf"}', "UTF-8"),
        ('{"name": "a"}'.encode("utf-16"), "UTF-8"),
        ('{"name": "a"}'.encode("utf-16-le"), "JSON"),
        (b"[" * 60_000, "nested"),
        (b'{"a":' * 12_000, "nested"),
        (b"9" * 60_000, "digits"),
        (b'{"metadata": {"a": -' + b"9" * 5000 + b"}}", "digits"),
    ],
)
def test_what_is_no_json_is_400_and_told_where(service: Service, body: bytes, says: str) -> None:
    problem = assert_problem(post(service, body), 400, "malformed_json")
    assert says in problem["detail"]


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Type: text/plain",
        b"Content-Type: application/x-www-form-urlencoded",
        b"Content-Type: multipart/form-data; boundary=x",
        b"Content-Type: application/jsonp",
        b"Content-Type: text/json+json",
        b"Content-Type: +json",
        b"Content-Type: ",
        b"Content-Type: \xff\xfe",
        b"Content-Type: application/json; charset=iso-8859-1",
        b'Content-Type: application/json;x=y; CharSet = "UTF-16"',
        b"Content-Type: application/json; charset=",
        b"Content-Type: application/json; charset=utf-8; charset=latin1",
        b"X-None: none",
    ],
)
def test_a_body_that_does_not_say_that_it_is_json_is_415(service: Service, header: bytes) -> None:
    answer = post(service, b"{}", header)
    assert_problem(answer, 415, "unsupported_media_type")
    assert answer.headers["accept"] == "application/json"


def test_a_second_media_type_is_not_passed_over(service: Service) -> None:
    for first, second in ((JSON, b"Content-Type: text/plain"), (b"content-type: text/plain", JSON)):
        answer = raw.send(service, raw.request("POST", PATH, first, second, body=b"{}"))
        (mistake,) = assert_problem(answer, 422, "invalid_request")["errors"]
        assert mistake == {
            "detail": "is there more than once",
            "location": "header",
            "pointer": "#/content-type",
        }


@pytest.mark.parametrize("charset", [b"utf-8", b"UTF-8", b'"utf-8"', b"utf8", b"utf-8; x=y"])
def test_a_body_may_say_that_it_is_utf_8(service: Service, charset: bytes) -> None:
    answer = post(service, b"{", JSON + b"; charset=" + charset)
    assert_problem(answer, 400, "malformed_json")


def test_no_body_is_told_to_be_missing(service: Service) -> None:
    assert_problem(raw.send(service, raw.request("POST", PATH)), 415, "unsupported_media_type")
    problem = assert_problem(raw.send(service, raw.request("POST", PATH, JSON)), 422, "invalid_request")
    assert problem["errors"] == [{"detail": "is required", "location": "body", "pointer": "#"}]


@pytest.mark.parametrize("size", [MOST_BODY_BYTES + 1, 1_000_000])
def test_a_body_that_says_to_be_too_large_is_413_before_it_is_sent(service: Service, size: int) -> None:
    head = raw.request("POST", PATH, JSON, b"Content-Length: %d" % size)
    assert_problem(raw.send(service, head), 413, "body_too_large")


def test_a_body_that_turns_out_to_be_too_large_is_413(service: Service) -> None:
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    head = raw.request("POST", PATH, JSON, b"Transfer-Encoding: chunked")
    assert_problem(raw.send(service, head + chunk * 5), 413, "body_too_large")


def test_a_body_of_1_mb_is_413_to_a_common_client(api: httpx.Client) -> None:
    for content in (b"x" * 1_000_000, iter([b"x" * 100_000] * 10)):
        answer = api.post(PATH, content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert api.get("/livez").status_code == 200


def test_a_body_of_the_most_bytes_is_read(service: Service) -> None:
    body = b'{"nmae": "' + b"x" * (MOST_BODY_BYTES - 12) + b'"}'
    assert len(body) == MOST_BODY_BYTES
    problem = assert_problem(post(service, body), 422, "invalid_request")
    assert [error["pointer"] for error in problem["errors"]] == ["#/nmae"]
    assert len(json.dumps(problem)) < 1000, "what was sent is not sent back"
