"""What is wrong with the parameters and bodies of the lifecycle's calls is named, and changes nothing."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from tests import raw
from tests.problems import assert_problem, mistakes, problem_of, refused_quietly
from tests.services import Service
from tests.single_calls import NewUser, address, happened, listed, register

PATH = "/v1/users/77"
JSON = b"Content-Type: application/json"


@pytest.fixture(autouse=True)
def _refused_quietly(service: Service, auditor: Engine, request: pytest.FixtureRequest) -> Iterator[None]:
    if "new_user" in request.fixturenames:  # it registers what it then leaves alone
        yield
        return
    with refused_quietly(service, auditor):
        yield


EVERY_CALL = [
    ("POST", f"{PATH}/devices", {"device_id": "a"}),
    ("GET", f"{PATH}/devices", None),
    ("DELETE", f"{PATH}/devices", None),
    ("GET", f"{PATH}/devices/a", None),
    ("PATCH", f"{PATH}/devices/a", {}),
    ("DELETE", f"{PATH}/devices/a", None),
    ("POST", f"{PATH}/devices/a/allow", None),
    ("POST", f"{PATH}/devices/a/heartbeat", None),
    ("POST", f"{PATH}/devices/a/transfer", {"to_user_id": "78"}),
    ("GET", f"{PATH}/quota", None),
    ("PUT", f"{PATH}/quota", {"limit": 1}),
    ("DELETE", f"{PATH}/quota", None),
    ("GET", f"{PATH}/events", None),
    ("DELETE", PATH, None),
    ("POST", "/v1/webhook-endpoints", {"url": "https://hooks.example.com/"}),
    ("GET", "/v1/webhook-endpoints", None),
    ("GET", "/v1/webhook-endpoints/1", None),
    ("PATCH", "/v1/webhook-endpoints/1", {}),
    ("DELETE", "/v1/webhook-endpoints/1", None),
    ("POST", "/v1/webhook-endpoints/1/rotate-secret", None),
    ("POST", "/v1/webhook-endpoints/1/test", None),
    ("GET", "/v1/webhook-deliveries", None),
    ("GET", "/v1/webhook-deliveries/1", None),
    ("POST", "/v1/webhook-deliveries/1/retry", None),
    ("POST", "/v1/webhook-deliveries/1/discard", None),
]


@pytest.mark.parametrize(("method", "path", "body"), EVERY_CALL)
def test_a_query_parameter_that_a_call_does_not_have_is_refused(
    api: httpx.Client, method: str, path: str, body: Any
) -> None:
    answer = api.request(method, path, params={"blok": "true", "a/b~": "", "ключ": "1"}, json=body)
    assert mistakes(answer) == [
        ("query", "#/blok"),
        ("query", "#/a~1b~0"),
        ("query", "#/%D0%BA%D0%BB%D1%8E%D1%87"),
    ]


def test_a_typo_in_a_parameter_does_not_revoke_without_the_block(
    api: httpx.Client, new_user: NewUser
) -> None:
    user = new_user()
    register(api, user, device_id="a")
    for query in (
        "blok=true",
        "Block=true",
        "block=true&block=false",
        "block=true&block=true",
        "block&block",
    ):
        answer = api.delete(f"{address(user, 'a')}?{query}")
        pointer = "#/block" if query.startswith("block") else f"#/{query.partition('=')[0]}"
        assert mistakes(answer) == [("query", pointer)], query
    assert listed(api, user) == ["a"]
    assert happened(api, user) == [("device.registered", "a")]


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, path, body in EVERY_CALL if body is None]
)
def test_a_body_that_a_call_does_not_have_is_refused(api: httpx.Client, method: str, path: str) -> None:
    for content in (b'{"block": true}', b"[]", b"null", b"x", iter([b'{"reason":', b' "x"}'])):
        answer = api.request(method, path, content=content, headers={"Content-Type": "application/json"})
        assert mistakes(answer) == [("body", "#")]
    problem_of(api.request(method, path, content=iter([b" " * 50_000] * 2)), 413, "body_too_large")


def test_an_empty_object_is_as_good_as_no_body(api: httpx.Client, new_user: NewUser) -> None:
    user = new_user()
    register(api, user, device_id="a")
    for key in ({}, {"Idempotency-Key": "k"}):
        assert api.post(address(user, "a", "/heartbeat"), json={}, headers=key).status_code == 200
    assert api.request("DELETE", address(user, "a"), content=b" {} ").status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "pointer"),
    [
        ("DELETE", "/devices/a?block=maybe", "#/block"),
        ("DELETE", "/devices/a?block=", "#/block"),
        ("DELETE", "/devices/a?block=2", "#/block"),
        ("DELETE", "/devices/a?reason=" + "x" * 501, "#/reason"),
        ("DELETE", "/devices/a?reason=a%00b", "#/reason"),
        ("DELETE", "/devices?reason=" + "x" * 501, "#/reason"),
        ("DELETE", "/devices?reason=a%0Ab", "#/reason"),
        ("DELETE", "/quota?reason=" + "%F0%9D%8C%86" * 501, "#/reason"),
        ("GET", "/events?limit=0", "#/limit"),
        ("GET", "/events?limit=101", "#/limit"),
        ("GET", "/events?limit=1&limit=2", "#/limit"),
        ("GET", "/events?cursor=x", "#/cursor"),
        ("GET", "/events?cursor=", "#/cursor"),
        ("GET", "/devices?cursor=a&cursor=b", "#/cursor"),
    ],
)
def test_a_bad_query_is_422_and_named(api: httpx.Client, method: str, path: str, pointer: str) -> None:
    assert mistakes(api.request(method, PATH + path)) == [("query", pointer)]


@pytest.mark.parametrize(
    ("method", "path", "body", "pointers"),
    [
        ("POST", "/devices/a/transfer", {"to_user_id": 78}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": "0"}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": "078"}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": "-1"}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": " 78"}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": "18446744073709551616"}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": "٧٨"}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": "me"}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": None}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {}, ["#/to_user_id"]),
        ("POST", "/devices/a/transfer", {"to_user_id": "78", "reason": "x"}, ["#/reason"]),
        ("PUT", "/quota", {"limit": -1}, ["#/limit"]),
        ("PUT", "/quota", {"limit": 10_001}, ["#/limit"]),
        ("PUT", "/quota", {"limit": True}, ["#/limit"]),
        ("PUT", "/quota", {"limit": "5"}, ["#/limit"]),
        ("PUT", "/quota", {"limit": 5.5}, ["#/limit"]),
        ("PUT", "/quota", {"limit": None}, ["#/limit"]),
        ("PUT", "/quota", {"limit": 10**400}, ["#/limit"]),
        ("PUT", "/quota", {}, ["#/limit"]),
        ("PUT", "/quota", {"limit": 5, "reason": "x" * 501}, ["#/reason"]),
        ("PUT", "/quota", {"limit": 5, "reason": 1}, ["#/reason"]),
        ("PUT", "/quota", {"limit": 5, "used": 0}, ["#/used"]),
        ("PATCH", "/devices/a", {"name": "x" * 101}, ["#/name"]),
        ("PATCH", "/devices/a", {"name": "nul\x00"}, ["#/name"]),
        ("PATCH", "/devices/a", {"platform": "nokia"}, ["#/platform"]),
        ("PATCH", "/devices/a", {"nmae": "typo"}, ["#/nmae"]),
        ("PATCH", "/devices/a", {"device_id": "b"}, ["#/device_id"]),
        ("PATCH", "/devices/a", {"lease_seconds": 60}, ["#/lease_seconds"]),
        ("PATCH", "/devices/a", {"last_seen_at": "2026-01-02T03:04:05Z"}, ["#/last_seen_at"]),
        ("PATCH", "/devices/a", {"metadata": []}, ["#/metadata"]),
        ("PATCH", "/devices/a", {"metadata": {"nested": {}}}, ["#/metadata/nested"]),
        ("PATCH", "/devices/a", {"metadata": {"k" * 41: None}}, ["#/metadata/" + "k" * 41]),
        ("PATCH", "/devices/a", {"metadata": {f"k{one}": None for one in range(65)}}, ["#/metadata"]),
    ],
)
def test_a_bad_body_is_422_and_named(
    api: httpx.Client, method: str, path: str, body: Any, pointers: list[str]
) -> None:
    assert mistakes(api.request(method, PATH + path, json=body)) == [("body", one) for one in pointers]


def test_half_a_surrogate_pair_is_422_in_a_patch_too(api: httpx.Client) -> None:
    for body in (b'{"name": "\\ud834"}', b'{"name": "\\udf06\\ud834"}'):
        answer = api.patch(
            f"{PATH}/devices/a", content=body, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert mistakes(answer) == [("body", "#/name")]


@pytest.mark.parametrize(("method", "path"), [("PATCH", "/devices/a"), ("PUT", "/quota")])
def test_what_is_no_json_object_is_refused_by_every_call_with_a_body(
    api: httpx.Client, method: str, path: str
) -> None:
    def send(content: bytes, media_type: str = "application/json") -> httpx.Response:
        return api.request(method, PATH + path, content=content, headers={"Content-Type": media_type})

    assert mistakes(send(b"[]")) == mistakes(send(b"null")) == [("body", "#")]
    problem_of(send(b"{"), 400, "malformed_json")
    problem_of(send(b'{"limit": 1, "limit": 2}'), 400, "malformed_json")
    problem_of(send(b"{}", "text/plain"), 415, "unsupported_media_type")
    problem_of(send(b"{}", "application/json-patch"), 415, "unsupported_media_type")
    problem_of(send(b" " * 70_000), 413, "body_too_large")


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b'""',
        b'"',
        b'"open',
        b'"a"b"',
        b'"back\\slash"',
        b"k" * 256,
        b'"' + b"k" * 256 + b'"',
        b"tab\tinside",
        "ключ".encode(),
        b"\xff",
    ],
)
def test_an_idempotency_key_that_is_none_is_422_on_every_post(service: Service, key: bytes) -> None:
    for path, body in (
        ("", b'{"device_id": "a"}'),
        ("/a/allow", b""),
        ("/a/heartbeat", b""),
        ("/a/transfer", b'{"to_user_id": "78"}'),
    ):
        request = raw.request("POST", f"{PATH}/devices{path}", JSON, b"Idempotency-Key: " + key, body=body)
        problem = assert_problem(raw.send(service, request), 422, "invalid_request")
        assert [(error["location"], error["pointer"]) for error in problem["errors"]] == [
            ("header", "#/idempotency-key")
        ]


@pytest.mark.parametrize("header", [b"Idempotency-Key: one", b'If-Match: "1"', JSON])
def test_a_header_that_is_there_twice_is_refused(service: Service, header: bytes) -> None:
    method, path = ("DELETE", "") if header.startswith(b"If-") else ("POST", "/allow")
    request = raw.request(method, f"{PATH}/devices/a{path}", header, header)
    problem = assert_problem(raw.send(service, request), 422, "invalid_request")
    (mistake,) = problem["errors"]
    assert (mistake["location"], mistake["detail"]) == ("header", "is there more than once")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/api-keys", {"name": "twice", "scopes": ["devices:read"]}),
        *((path, body) for method, path, body in EVERY_CALL if method == "POST" and "/users/" not in path),
    ],
)
def test_a_post_that_keeps_no_answers_refuses_an_idempotency_key(
    api: httpx.Client, path: str, body: Any
) -> None:
    problem = problem_of(
        api.post(path, json=body, headers={"Idempotency-Key": "one"}), 422, "invalid_request"
    )
    assert problem["errors"] == [
        {"detail": "is no header of this call", "location": "header", "pointer": "#/idempotency-key"}
    ]


@pytest.mark.parametrize(
    "path", ["/v1/api-keys", "/v1/webhook-endpoints", f"{PATH}/devices", f"{PATH}/quota"]
)
def test_what_may_be_repeated_anyhow_takes_no_notice_of_an_idempotency_key(
    api: httpx.Client, path: str
) -> None:
    assert api.get(path, headers={"Idempotency-Key": "one"}).status_code == 200
