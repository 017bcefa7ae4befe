"""What is no HTTP, or what two readers could read differently: a problem, and nothing is done."""

import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from sqlalchemy import Engine

from tests import raw
from tests.problems import assert_problem, refused_quietly
from tests.services import ROOT_KEY, Service

JSON = b"Content-Type: application/json"
REGISTER = "/v1/users/77/devices"
HIDDEN = raw.request("POST", REGISTER, JSON, body=b'{"device_id": "smuggled"}')
CHUNKED = b"Transfer-Encoding: chunked"


def head(*headers: bytes, line: bytes = b"POST /v1/users/77/devices HTTP/1.1") -> bytes:
    own = (b"Host: cupo.test", b"Authorization: Bearer " + ROOT_KEY.encode(), JSON)
    return b"\r\n".join([line, *own, *headers, b"", b""])


@pytest.fixture
def _quiet(service: Service, auditor: Engine) -> Iterator[None]:
    with refused_quietly(service, auditor):
        yield


NO_HTTP = {
    "zeros": b"\x00\x01\x02\x03\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "HTTP/1.2": b"GET /livez HTTP/1.2\r\nHost: a\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: a\r\n\r\n",
    "space in the target": b"GET /livez x HTTP/1.1\r\nHost: a\r\n\r\n",
    "raw bytes in the target": b"GET /v1/users/\xff/devices HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment in the target": b"GET /livez#x HTTP/1.1\r\nHost: a\r\n\r\n",
    "a host for a target": b"GET cupo.test:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "bare LF": b"GET /livez HTTP/1.1\nHost: a\n\n",
    "no Host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP.keys())
@pytest.mark.usefixtures("_quiet")
def test_what_is_no_http_is_a_problem_and_the_service_goes_on(service: Service, sent: bytes) -> None:
    (answer,) = raw.all_answers(service, sent)
    assert_problem(answer, 400, "malformed_request")
    assert answer.headers["connection"] == "close"
    assert httpx.get(f"{service.url}/livez").status_code == 200


TWO_READINGS = {
    "length and chunked": head(b"Content-Length: 5", CHUNKED) + b"0\r\n\r\n",
    "chunked and length": head(CHUNKED, b"Content-Length: 5") + b"0\r\n\r\n",
    "two lengths": head(b"Content-Length: 0", b"Content-Length: %d" % len(HIDDEN)),
    "one length twice": head(b"Content-Length: 0", b"Content-Length: 0"),
    "a list of lengths": head(b"Content-Length: 0, 0"),
    "a signed length": head(b"Content-Length: +0"),
    "a negative length": head(b"Content-Length: -5"),
    "a hexadecimal length": head(b"Content-Length: 0x0"),
    "a length above all": head(b"Content-Length: 99999999999999999999999"),
    "chunked twice": head(CHUNKED, CHUNKED) + b"0\r\n\r\n",
    "chunked last of two": head(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "chunked first of two": head(b"Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n",
    "a coding of another name": head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "identity": head(b"Transfer-Encoding: identity"),
    "a tab before the coding": head(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
    "chunked in HTTP/1.0": head(CHUNKED, line=b"POST /v1/users/77/devices HTTP/1.0") + b"0\r\n\r\n",
    "a space before the colon": head(b"Content-Length : 0"),
    "a space in a name": head(b"Content Length: 0"),
    "a name that is empty": head(b": 0"),
    "a line without a colon": head(b"Content-Length"),
    "a folded line": head(b"X-None: a\r\n b"),
    "a folded coding": head(b"Transfer-Encoding:\r\n chunked") + b"0\r\n\r\n",
    "bare LF after a field": head(b"X-None: a\nContent-Length: 0"),
    "bare CR in a field": head(b"X-None: a\rContent-Length: 0"),
    "NUL in a field": head(b"X-None: a\x00b"),
    "a size that is none": head(CHUNKED) + b"zz\r\n",
    "a negative size": head(CHUNKED) + b"-1\r\n\r\n",
    "a size with a prefix": head(CHUNKED) + b"0x0\r\n\r\n",
    "a size above all": head(CHUNKED) + b"f" * 17 + b"\r\n",
    "a space after a size": head(CHUNKED) + b"0 \r\n\r\n",
    "bare LF after a size": head(CHUNKED) + b"0\n\n",
    "bare LF after an extension": head(CHUNKED) + b"2;a\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": head(CHUNKED) + b"2\r\n{}}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", TWO_READINGS.values(), ids=TWO_READINGS.keys())
@pytest.mark.usefixtures("_quiet")
def test_no_request_hides_in_the_body_of_another(service: Service, sent: bytes) -> None:
    (answer,) = raw.all_answers(service, sent + HIDDEN)
    assert_problem(answer, 400, "malformed_request")


@pytest.mark.usefixtures("_quiet")
def test_trailers_are_no_header_fields(service: Service) -> None:
    sent = b"\r\n".join(
        [
            b"DELETE /v1/users/77/devices HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n",
            b"0\r\nAuthorization: Bearer " + ROOT_KEY.encode(),
            b"\r\n",
        ]
    )
    assert_problem(raw.send(service, sent), 401, "unauthenticated")


def test_a_request_for_another_protocol_is_answered_in_this_one_with_its_body(
    service: Service, new_user: Callable[[], int]
) -> None:
    """Java's own client asks for HTTP/2 with each call, and its body comes in a packet of its own."""
    path = f"/v1/users/{new_user()}/devices"
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQ")
    body = b'{"device_id": "java"}'
    whole = raw.request("POST", path, JSON, *upgrade, body=body)
    last = raw.request("GET", path, b"Connection: close")
    for parts in ((whole, last), (whole[: -len(body)], body + last), (whole + whole + last,)):
        answers = raw.all_answers(service, *parts)
        assert {answer.status for answer in answers} <= {200, 201}
        assert [device["device_id"] for device in answers[-1].json()["items"]] == ["java"]


def test_a_bad_request_does_not_spoil_the_answer_to_the_one_before_it(
    service: Service, new_user: Callable[[], int]
) -> None:
    good = raw.request("POST", f"/v1/users/{new_user()}/devices", JSON, body=b'{"device_id": "a"}')
    first, second = raw.all_answers(service, good + b"GET / HTTP/1.1\r\nHost : a\r\n\r\n" + HIDDEN)
    assert (first.status, first.json()["device"]["device_id"]) == (201, "a")
    assert_problem(second, 400, "malformed_request")


def test_calls_that_do_not_wait_for_answers_are_answered_in_turn_up_to_a_hundred(service: Service) -> None:
    call = b"GET /problems/contention HTTP/1.1\r\nHost: a\r\n\r\n"
    answers = raw.all_answers(service, call * 150)
    assert [answer.status for answer in answers] == [200] * 101 + [503]
    assert_problem(answers[-1], 503, "overloaded")


@pytest.mark.usefixtures("_quiet")
def test_a_head_of_more_than_16_kib_or_100_fields_is_431(service: Service) -> None:
    line = b"GET /livez HTTP/1.1\r\nHost: a\r\n"
    for sent in (
        line + b"X-None: " + b"a" * 16_400 + b"\r\n\r\n",
        line + b"X-None: " + b"a" * 1_000_000 + b"\r\n\r\n",
        line + b"X-None: " + b"a" * 16_400,
        line + b"Authorization: Bearer a\r\nX-None: " + b"a" * 1_000_000 + b"\r\n\r\n",
        line + b"a" * 16_400,
        line + b"a:b\r\n" * 100 + b"\r\n",
        b"GET /livez?" + b"a" * 16_400 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /" + b"a" * 20_000,
    ):
        answer = raw.send(service, sent)
        problem = assert_problem(answer, 431, "request_header_fields_too_large")
        assert "16384 bytes and 100 fields" in problem["detail"]
        assert len(json.dumps(problem)) < 1000, "what was sent is not sent back"


def test_a_head_of_the_most_bytes_and_fields_is_read(service: Service) -> None:
    line = b"GET /livez HTTP/1.1\r\nHost: a\r\n"
    for sent in (line + b"X-None: " + b"a" * 16_300 + b"\r\n\r\n", line + b"a:b\r\n" * 99 + b"\r\n"):
        assert raw.send(service, sent).status == 200


@pytest.mark.parametrize("method", ["FOO", "get", "CONNECT", "TRACE", "PROPFIND", "M-SEARCH"])
@pytest.mark.usefixtures("_quiet")
def test_a_method_that_the_service_has_not_is_405(service: Service, method: str) -> None:
    target = "cupo.test:443" if method == "CONNECT" else REGISTER
    answer = raw.send(service, raw.request(method, target))
    assert_problem(answer, 405, "method_not_allowed")
    assert {"DELETE", "GET", "HEAD", "POST"} <= set(answer.headers["allow"].split(", "))
