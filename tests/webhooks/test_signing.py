"""Signatures, verified by the library that receivers use."""

import json
import re
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from app.webhooks.signing import new_key, signed_headers, spelled

BODY = '{"type":"device.registered","data":{"name":"Анин телефон 📱"}}'.encode()


def signed(*keys: bytes, body: bytes = BODY, timestamp: int | None = None) -> dict[str, str]:
    return signed_headers(keys, "msg_1_2", timestamp or int(time.time()), body)


def test_a_receiver_with_the_secret_verifies_the_body() -> None:
    key = new_key()
    assert Webhook(spelled(key)).verify(BODY, signed(key)) == json.loads(BODY)


def test_a_signature_is_that_of_the_library_to_the_byte() -> None:
    key, at = new_key(), 1_790_000_000
    expected = Webhook(spelled(key)).sign("msg_1_2", datetime.fromtimestamp(at, UTC), BODY.decode())
    assert signed(key, timestamp=at) == {
        "webhook-id": "msg_1_2",
        "webhook-timestamp": str(at),
        "webhook-signature": expected,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_1_3"},
        {"webhook-timestamp": str(int(time.time()) + 60)},
        {"webhook-signature": "v1,AAAA"},
    ],
)
def test_whoever_changes_a_header_is_noticed(change: dict[str, str]) -> None:
    key = new_key()
    with pytest.raises(WebhookVerificationError):
        Webhook(spelled(key)).verify(BODY, signed(key) | change)


def test_whoever_changes_the_body_or_has_another_secret_is_noticed() -> None:
    key = new_key()
    with pytest.raises(WebhookVerificationError):
        Webhook(spelled(key)).verify(BODY + b" ", signed(key))
    with pytest.raises(WebhookVerificationError):
        Webhook(spelled(new_key())).verify(BODY, signed(key))


def test_an_old_message_cannot_be_played_again() -> None:
    key = new_key()
    with pytest.raises(WebhookVerificationError, match="old"):
        Webhook(spelled(key)).verify(BODY, signed(key, timestamp=int(time.time()) - 3600))


def test_during_a_rotation_a_receiver_verifies_with_either_secret_and_after_it_with_the_new_one_alone() -> (
    None
):
    old, new = new_key(), new_key()
    during = signed(new, old)
    assert len(during["webhook-signature"].split(" ")) == 2
    for key in (old, new):
        assert Webhook(spelled(key)).verify(BODY, during)
    with pytest.raises(WebhookVerificationError):
        Webhook(spelled(old)).verify(BODY, signed(new))


def test_a_secret_is_256_random_bits_behind_its_prefix() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", spelled(new_key()))
