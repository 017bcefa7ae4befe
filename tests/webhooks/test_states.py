"""docs/delivery_states.md is read and tried: what it draws happens, and nothing else does."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError, OperationalError

from app.db import Database, Tx
from app.tables import DELIVERY_STATES
from app.webhooks import change_queries, claim_queries, settle_queries
from app.webhooks.claim import settlement
from app.webhooks.deliver import Attempt
from app.webhooks.deliveries import Delivery, Endpoint
from app.webhooks.retry import MOST_ATTEMPTS
from tests.webhooks.rows import put_delivery, put_endpoint, read

pytestmark = [pytest.mark.locking, pytest.mark.usefixtures("own")]

DRAWING = Path(__file__).parents[2] / "docs" / "delivery_states.md"
TOKEN = "a-token"
Transition = tuple[str, str, str]


def drawn() -> set[Transition]:
    """From, to, by: the rows of the table of transitions."""
    section = DRAWING.read_text().split("## The transitions")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([\w ]+) \|", section, re.MULTILINE))


def columns_of(state: str, *, is_late: bool) -> dict[str, Any]:
    """What a row in this state has. `is_late`: its time, if it has one, has come."""
    instant = "2020-01-01 00:00:00" if is_late else "2100-01-01 00:00:00"
    return {
        "state": state,
        "due_at": instant if state in {"pending", "retrying"} else None,
        "claimed_by": TOKEN if state == "claimed" else None,
        "claimed_until": instant if state == "claimed" else None,
        "ended_at": instant if state in {"delivered", "discarded"} else None,
        "attempts": 0 if state in {"waiting", "pending"} else 1,
    }


def put(engine: Engine, endpoint: int, user: int, state: str, *, is_late: bool = True, **more: Any) -> int:
    head = user if state in {"pending", "claimed", "retrying"} else None
    columns = columns_of(state, is_late=is_late) | {"head_user_id": head} | more
    return put_delivery(engine, endpoint, user, **columns)


def ours(delivery_id: int, token: str = TOKEN, attempts: int = 1) -> Delivery:
    return Delivery(delivery_id, token, Endpoint(1, "https://a/", ()), "t", None, attempts, None)  # type: ignore[arg-type] # nobody asks when


def settling(outcome: Any, attempts: int = 1) -> Callable[[Tx, int], object]:
    made = settlement(ours(0, attempts=attempts), Attempt(outcome, 0.1))

    def settle(tx: Tx, delivery_id: int) -> object:
        return settle_queries.settle_if_claimed(tx, {ours(delivery_id): 1}, made.settled)

    return settle


# Every statement that writes a state.
OPERATIONS: dict[str, list[Callable[[Tx, int], object]]] = {
    "promote": [lambda tx, one: settle_queries.promote_if_waiting(tx, [one])],
    "discard": [lambda tx, one: change_queries.discard_if_unclaimed(tx, [one])],
    "claim": [lambda tx, one: claim_queries.claim_if_due(tx, [one], "another", 30)],
    "retry": [change_queries.hasten_if_retrying, change_queries.reopen_if_discarded],
    "settle": [settling("delivered"), settling("failed"), settling("failed", MOST_ATTEMPTS)],
    "give back": [
        lambda tx, one: settle_queries.give_back_if_claimed(tx, ours(one)),
        lambda tx, one: settle_queries.give_back_if_claimed(tx, ours(one, attempts=2)),
    ],
    "rescue": [
        lambda tx, one: settle_queries.rescue_if_expired(tx, [one], MOST_ATTEMPTS),
        lambda tx, one: settle_queries.rescue_if_expired(tx, [one], 1),
    ],
}


def happened(engine: Engine, db: Database, by: str, before: str, **more: Any) -> Iterator[Transition]:
    """What becomes of a delivery in this state, by each of the statements."""
    endpoint = put_endpoint(engine)
    for user, operation in enumerate(OPERATIONS[by], start=1):
        delivery = put(engine, endpoint, user, before, **more)
        if db.transact(operation, delivery):
            (after,) = read(engine, "SELECT state FROM webhook_deliveries WHERE id = :id", id=delivery)
            yield before, after, by


def test_what_is_drawn_happens_and_nothing_else(own_db: Database, engine: Engine) -> None:
    everything = itertools.product(OPERATIONS, DELIVERY_STATES)
    found = {one for by, before in everything for one in happened(engine, own_db, by, before)}
    assert found == drawn()


@pytest.mark.parametrize("before", ["pending", "retrying"])
def test_what_is_not_due_is_not_claimed(own_db: Database, engine: Engine, before: str) -> None:
    assert list(happened(engine, own_db, "claim", before, is_late=False)) == []


def test_a_claim_that_has_time_left_is_not_rescued(own_db: Database, engine: Engine) -> None:
    assert list(happened(engine, own_db, "rescue", "claimed", is_late=False)) == []


@pytest.mark.parametrize("by", ["settle", "give back"])
def test_what_another_has_claimed_is_neither_settled_nor_given_back(
    own_db: Database, engine: Engine, by: str
) -> None:
    assert list(happened(engine, own_db, by, "claimed", claimed_by="another")) == []


def without_head(state: str, **columns: Any) -> dict[str, Any]:
    return columns_of(state, is_late=True) | {"head_user_id": None} | columns


IMPOSSIBLE = {
    "no such state": {"state": "lost"},
    "claimed without an owner": columns_of("claimed", is_late=True) | {"claimed_by": None},
    "claimed without an end": columns_of("claimed", is_late=True) | {"claimed_until": None},
    "an owner without a claim": {"claimed_by": TOKEN},
    "pending and never due": {"due_at": None},
    "pending and tried": {"attempts": 1},
    "pending and no head": {"head_user_id": None},
    "delivered without a time": without_head("delivered", ended_at=None),
    "delivered without an attempt": without_head("delivered", attempts=0),
    "delivered and still a head": columns_of("delivered", is_late=True),
    "waiting and due": without_head("waiting", due_at="2020-01-01 00:00:00"),
    "waiting as a head": columns_of("waiting", is_late=True),
    "waiting of nobody": without_head("waiting", user_id=None, event_id=None),
    "the head of another user": {"head_user_id": 99},
    "an event of nobody": {"user_id": None, "head_user_id": None},
    "attempts below zero": {"attempts": -1},
}


@pytest.mark.parametrize("columns", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_the_tables_refuse_what_no_state_is(engine: Engine, columns: dict[str, Any]) -> None:
    endpoint = put_endpoint(engine)
    with pytest.raises((IntegrityError, OperationalError), match="webhook_deliveries_"):
        put_delivery(engine, endpoint, **({"user_id": 1} | columns))


def test_of_one_user_there_is_one_head_at_an_endpoint(engine: Engine) -> None:
    endpoint, other = put_endpoint(engine), put_endpoint(engine)
    put_delivery(engine, endpoint, 1)
    put_delivery(engine, other, 1)
    with pytest.raises(IntegrityError, match="webhook_deliveries_one_head"):
        put_delivery(engine, endpoint, 1)


def test_an_event_is_told_to_an_endpoint_once(engine: Engine) -> None:
    endpoint = put_endpoint(engine)
    put_delivery(engine, endpoint, 1, event_id=7)
    with pytest.raises(IntegrityError, match="webhook_deliveries_tell_once"):
        put(engine, endpoint, 1, "waiting", event_id=7)
