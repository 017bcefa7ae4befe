"""A COMMIT whose answer is lost: whether it happened or not, the caller sees its success, and one effect."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine

from app.db import Database, Tx
from app.etags import Precondition
from app.settings import Settings, load_settings
from app.webhooks import service
from app.webhooks.schemas import NewWebhookEndpoint, WebhookEndpointChange
from tests.lifecycle.steps import connection_id, database
from tests.proxy import Fate, proxied
from tests.webhooks.rows import put_delivery, put_endpoint, read

pytestmark = pytest.mark.locking

OLD, NEW = b"k" * 32, b"n" * 32
AT_REVISION_1 = Precondition(frozenset({'"1"'}))
STATES = "SELECT state FROM webhook_deliveries"


@dataclass(frozen=True)
class Behind:
    """A database whose next COMMIT is lost."""

    db: Database
    lose_commit: Callable[[], None]
    settings: Settings

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        self.db.transact(connection_id)  # opening a connection ends by a COMMIT too
        self.lose_commit()
        runs = 0

        def counted(tx: Tx) -> Any:
            nonlocal runs
            runs += 1
            return work(tx, *args)

        result = self.db.transact(counted)
        assert runs == 2, "no COMMIT was lost"
        return result


@pytest.fixture(params=[Fate.CUT_BEFORE, Fate.CUT_AFTER], ids=["not-committed", "committed"])
def behind(request: pytest.FixtureRequest, own: Settings) -> Iterator[Behind]:
    with proxied(own.database_url.get_secret_value()) as (proxy, url), database(url) as db:

        def lose_commit() -> None:
            fates = iter([request.param])
            proxy.fate = lambda sql: next(fates, Fate.PASS) if sql == "COMMIT" else Fate.PASS

        yield Behind(db, lose_commit, load_settings())


def test_one_endpoint_is_made(behind: Behind, engine: Engine) -> None:
    new = NewWebhookEndpoint(url="https://hooks.example.com/")
    made = behind.run(service.create_endpoint, behind.settings, NEW, new)
    assert read(engine, "SELECT id, secret, revision FROM webhook_endpoints") == [(made.id, NEW, 1)]


def test_a_change_at_an_if_match_is_made_once(behind: Behind, engine: Engine) -> None:
    endpoint = put_endpoint(engine)
    change = WebhookEndpointChange(enabled=False, description="x")
    changed = behind.run(service.change_endpoint, behind.settings, endpoint, change, AT_REVISION_1)
    assert (changed.enabled, changed.description, changed.revision) == (False, "x", 2)


def test_an_endpoint_is_deleted(behind: Behind, engine: Engine) -> None:
    endpoint = put_endpoint(engine)
    assert behind.run(service.delete_endpoint, endpoint, AT_REVISION_1)
    assert read(engine, "SELECT revision, secret FROM webhook_endpoints") == [(2, b"")]


def test_a_secret_is_rotated_once_so_that_the_old_one_stays_good(behind: Behind, engine: Engine) -> None:
    endpoint = put_endpoint(engine)
    assert behind.run(service.rotate_secret, endpoint, NEW, 60, AT_REVISION_1).revision == 2
    assert read(engine, "SELECT secret, previous_secret FROM webhook_endpoints") == [(NEW, OLD)]


def test_one_test_is_sent(behind: Behind, engine: Engine) -> None:
    sent = behind.run(service.send_test, put_endpoint(engine))
    assert read(engine, "SELECT id, type FROM webhook_deliveries") == [(sent.id, "webhook.test")]


def test_a_delivery_is_brought_back(behind: Behind, engine: Engine) -> None:
    ended: dict[str, Any] = {"head_user_id": None, "due_at": None, "ended_at": "2026-11-30 09:31:00"}
    number = put_delivery(engine, put_endpoint(engine), 42, state="discarded", **ended)
    assert behind.run(service.retry_delivery, number).state == "pending"
    assert read(engine, STATES) == ["pending"]


def test_a_delivery_is_discarded(behind: Behind, engine: Engine) -> None:
    number = put_delivery(engine, put_endpoint(engine), 42)
    assert behind.run(service.discard_delivery, number).state == "discarded"
    assert read(engine, STATES) == ["discarded"]
