"""An erasure comes in batches, events first: what is claimed between two of them tells nothing any more."""

import pytest
from sqlalchemy import Engine

from app.db import Database
from app.webhooks.claim import claim, settle, settlement
from app.webhooks.connections import Connections
from app.webhooks.deliver import deliver
from tests.webhooks.receivers import receiving
from tests.webhooks.rows import put_delivery, put_endpoint, read, run

pytestmark = pytest.mark.usefixtures("own")


def test_a_delivery_whose_event_was_erased_is_not_sent_and_goes(own_db: Database, engine: Engine) -> None:
    local = Connections(allow_http=True, allow_private=True)
    with receiving() as receiver:
        endpoint = put_endpoint(engine, receiver.url)
        put_delivery(engine, endpoint, 42)
        run(engine, "DELETE FROM events WHERE user_id = 42")
        put_delivery(engine, endpoint, 42, head_user_id=None, state="waiting", due_at=None)
        (erased,) = claim(own_db, "a claim", 16, 2)
        attempt = deliver(local, erased)
        own_db.transact(settle, [settlement(erased, attempt)])
    assert receiver.connections == 0
    assert attempt.error == "what it told of was erased"
    left = "SELECT state FROM webhook_deliveries"
    assert read(engine, left) == ["pending"], "what stood behind it goes on"
