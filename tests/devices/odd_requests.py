"""Registrations as clients send them, odd and broken ones too: a request each, or several on a connection."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests import raw
from tests.services import ROOT_KEY

JSON = b"Content-Type: application/json"
LARGEST = 2**64 - 1
LAST = b"Connection: close"


@dataclass(frozen=True)
class Caller:
    """Who calls, and for which user. The tokens are good for both services."""

    user: int
    user_token: str
    token_of_another: str
    key: str
    key_for_reading: str
    expired_key: str

    def post(self, *headers: bytes, body: bytes = b"{}", key: str | None = ROOT_KEY, path: str = "") -> bytes:
        target = path or f"/v1/users/{self.user}/devices"
        return raw.request("POST", target, *headers, LAST, body=body, key=key)

    def plain(self, body: bytes = b"{}", key: str | None = ROOT_KEY, user: str = "") -> bytes:
        return self.post(JSON, body=body, key=key, path=f"/v1/users/{user or self.user}/devices")

    def with_header(self, line: bytes) -> bytes:
        return self.post(JSON, line)

    def given(self, authorization: bytes) -> bytes:
        return self.post(JSON, b"Authorization: " + authorization, key=None)

    def by(self, method: str) -> bytes:
        return raw.request(method, f"/v1/users/{self.user}/devices", JSON, LAST, body=b"{}")

    def chunked(self, *chunks: bytes) -> bytes:
        head = self.post(JSON, b"Transfer-Encoding: chunked", body=b"")
        return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


Requests = Callable[[Caller], tuple[bytes, ...]]


def alone(request: Callable[[Caller], bytes]) -> Requests:
    return lambda caller: (request(caller),)


def bodies(**of: bytes) -> dict[str, Requests]:
    return {name: alone(partial(Caller.plain, body=body)) for name, body in of.items()}


def users(**of: str) -> dict[str, Requests]:
    return {name: alone(partial(Caller.plain, user=user)) for name, user in of.items()}


def headers(**of: bytes) -> dict[str, Requests]:
    return {name: alone(partial(Caller.with_header, line=line)) for name, line in of.items()}


NAMED = (
    b'{"device_id": "a", "name": "Ana\xc3\xa9", "platform": "ios", "metadata": {"k": 1}, "lease_seconds": 60}'
)
CASES: dict[str, Requests] = {
    **bodies(
        empty_object=b"{}",
        all_fields=NAMED,
        no_body=b"",
        spaces=b'  {"device_id" : "a"}\r\n ',
        byte_order_mark=b'\xef\xbb\xbf{"device_id": "a"}',
        not_json=b"{",
        not_utf_8=b'{"name": "\xff"}',
        latin_1=b'{"name": "Ana\xe9"}',
        nan=b'{"metadata": {"k": NaN}}',
        a_list=b"[]",
        a_string=b'"a"',
        null=b"null",
        key_twice=b'{"name": "a", "name": "b"}',
        unknown_field=b'{"nmae": "a"}',
        bad_id=b'{"device_id": "a b"}',
        dots=b'{"device_id": ".."}',
        long_id=b'{"device_id": "%s"}' % (b"a" * 129),
        number_for_id=b'{"device_id": 5}',
        bad_lease=b'{"lease_seconds": 59}',
        lease_as_text=b'{"lease_seconds": "60"}',
        lease_as_float=b'{"lease_seconds": 60.0}',
        no_lease=b'{"lease_seconds": null}',
        half_a_pair=b'{"name": "\\ud800"}',
        control_character=b'{"name": "a\\u0000"}',
        long_number=b'{"metadata": {"k": %s}}' % (b"1" * 5000),
        deep=b"[" * 4000,
        evicting=b'{"on_limit": "evict_oldest"}',
        rejecting=b'{"on_limit": "reject"}',
        replacing=b'{"replace_device_id": "none"}',
        between_8_and_64_kib=b'{"name": "a"%s}' % (b" " * 20_000),
        above_64_kib=b'{"name": "a"%s}' % (b" " * 70_000),
        known=b'{"device_id": "known", "name": "new"}',
        blocked=b'{"device_id": "blocked"}',
    ),
    **users(
        me_by_a_key="me",
        zero="0",
        leading_zero="042",
        largest=str(LARGEST),
        too_large=str(LARGEST + 1),
        twenty_digits="9" * 20,
        twenty_one_digits="1" * 21,
        negative="-1",
        plus="+1",
        letters="abc",
        percent_encoded_me="%6d%65",
        encoded_slash="42%2F43",
        arabic_digits="%D9%A4%D9%A2",
        empty="",
        space="42%20",
        line_end="42%0A",
    ),
    **headers(
        charset_twice=b"content-type: application/json",
        accept=b"Accept: text/html",
        query_in_no_path=b"X-Other: 1",
        idempotency_key=b"Idempotency-Key: a-key",
        bad_idempotency_key=b"Idempotency-Key: ",
        two_idempotency_keys=b"Idempotency-Key: a\r\nIdempotency-Key: b",
        if_match=b'If-Match: "1"',
        two_of_another=b"X-Other: 1\r\nX-Other: 2",
        two_authorizations=b"Authorization: Bearer another",
        request_id_that_is_none=b"X-Other: \xe9",
        forwarded=b"X-Forwarded-Proto: https",
        origin=b"Origin: https://page.test",
        expect=b"Expect: 100-continue",
        expect_another=b"Expect: a-wonder",
        upgrade=b"Upgrade: websocket",
    ),
    "no content type": alone(lambda caller: caller.post()),
    "charset": alone(lambda caller: caller.post(b"Content-Type: application/json; charset=utf-8")),
    "another charset": alone(lambda caller: caller.post(b"Content-Type: application/json; charset=latin-1")),
    "capitals": alone(lambda caller: caller.post(b"Content-Type: Application/JSON")),
    "json of a kind": alone(lambda caller: caller.post(b"Content-Type: application/merge-patch+json")),
    "a form": alone(lambda caller: caller.post(b"Content-Type: application/x-www-form-urlencoded")),
    "full": alone(lambda caller: caller.plain(b'{"device_id": "one more"}'.replace(b" m", b"-m"))),
    "no key": alone(lambda caller: caller.plain(key=None)),
    "a wrong key": alone(lambda caller: caller.plain(key="wrong")),
    "an api key": alone(lambda caller: caller.plain(key=caller.key)),
    "a key without the scope": alone(lambda caller: caller.plain(key=caller.key_for_reading)),
    "a key without the scope and no JSON": alone(lambda caller: caller.plain(b"{", caller.key_for_reading)),
    "an expired key": alone(lambda caller: caller.plain(key=caller.expired_key)),
    "a key that is none": alone(lambda caller: caller.plain(key="cupo_x")),
    "an empty key": alone(lambda caller: caller.given(b"Bearer ")),
    "a key after two spaces": alone(lambda caller: caller.given(b"Bearer  " + ROOT_KEY.encode())),
    "a key before a space": alone(lambda caller: caller.given(b"Bearer " + ROOT_KEY.encode() + b" ")),
    "a key in small letters": alone(lambda caller: caller.given(b"bearer " + ROOT_KEY.encode())),
    "a key after a tab": alone(lambda caller: caller.given(b"Bearer\t" + ROOT_KEY.encode())),
    "basic": alone(lambda caller: caller.given(b"Basic Og==")),
    "a key of other letters": alone(lambda caller: caller.given(b"Bearer \xe9")),
    "a user": alone(lambda caller: caller.plain(key=caller.user_token)),
    "a user as me": alone(lambda caller: caller.plain(key=caller.user_token, user="me")),
    "another user": alone(lambda caller: caller.plain(key=caller.token_of_another)),
    "another user without JSON": alone(lambda caller: caller.plain(b"{", key=caller.token_of_another)),
    "a user who would evict": alone(
        lambda caller: caller.plain(b'{"on_limit": "evict_oldest"}', key=caller.user_token)
    ),
    "percent-encoded": alone(
        lambda caller: caller.plain(user="".join(f"%3{digit}" for digit in str(caller.user)))
    ),
    "a user in other digits": alone(
        lambda caller: caller.plain(key=caller.user_token, user=f"0{caller.user}")
    ),
    "a token that is none": alone(lambda caller: caller.plain(key="a.b.c")),
    "a query": alone(lambda caller: caller.post(JSON, path=f"/v1/users/{caller.user}/devices?block=true")),
    "an empty query": alone(lambda caller: caller.post(JSON, path=f"/v1/users/{caller.user}/devices?")),
    "a slash more": alone(lambda caller: caller.post(JSON, path=f"/v1/users/{caller.user}/devices/")),
    "two slashes": alone(lambda caller: caller.post(JSON, path=f"//v1/users/{caller.user}/devices")),
    "a whole address": alone(
        lambda caller: caller.post(JSON, path=f"http://cupo.test/v1/users/{caller.user}/devices")
    ),
    **{
        method: alone(partial(Caller.by, method=method))
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post", "PROPFIND")
    },
    "chunked": alone(lambda caller: caller.chunked(b'{"device_id":', b' "a"}')),
    "chunked without body": alone(lambda caller: caller.chunked()),
    "in two pieces": lambda caller: (caller.plain(NAMED)[:-10], caller.plain(NAMED)[-10:]),
    "a long body in two pieces": lambda caller: (
        caller.plain(b"{%s}" % (b" " * 60_000))[:-10],
        caller.plain(b"{%s}" % (b" " * 60_000))[-10:],
    ),
    "pipelined": alone(
        lambda caller: caller.plain(b'{"device_id": "a"}').replace(LAST + b"\r\n", b"") * 2 + caller.plain()
    ),
    "HTTP/1.0": alone(lambda caller: caller.plain().replace(b"HTTP/1.1", b"HTTP/1.0")),
}
