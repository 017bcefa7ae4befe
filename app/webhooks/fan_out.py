"""From the outbox to deliveries: one for each endpoint that wants to hear of the event."""

from collections.abc import Iterator, Sequence
from typing import Any

from app.db import Tx
from app.dialects import named_lock
from app.webhooks import outbox_queries as queries
from app.webhooks.claim_queries import lock_endpoints
from app.webhooks.outbox_queries import Subscriber

# Rows of one transaction, which holds up claims and settles while it runs.
MOST_DELIVERIES = 500
MOST_EVENTS = 500


def fan_out(tx: Tx) -> int:
    """Make deliveries of the oldest events in the outbox: of how many. Exactly once, and in their order.

    Locks the events, so that a rival waits and then finds them taken out, and then the endpoints: a settle
    that ends what a new delivery would stand behind has either ended it before, or sees the new one.
    """
    with named_lock(tx, "fan_out") as alone:  # to spare the others the wait; the rows' locks make it right
        if not alone:
            return 0
        subscribers = queries.subscribers(tx)
        most_events = max(1, min(MOST_EVENTS, MOST_DELIVERIES // max(1, len(subscribers))))
        ids = queries.ids_in_outbox(tx, most_events)
        events = queries.lock_events(tx, ids) if ids else []
        if events:
            _insert(tx, subscribers, events)
            queries.take_out(tx, [event.id for event in events])
        return len(events)


def _insert(tx: Tx, subscribers: list[Subscriber], events: Sequence[Any]) -> None:
    wanted = [(one.id, event) for event in events for one in subscribers if one.wants(event)]
    if not wanted:
        return
    endpoint_ids = {endpoint_id for endpoint_id, _ in wanted}
    lock_endpoints(tx, endpoint_ids)
    heads = queries.heads(tx, endpoint_ids, {event.user_id for _, event in wanted})
    queries.insert_deliveries(tx, list(_in_line(wanted, heads)))


def _in_line(wanted: list[tuple[int, Any]], heads: set[tuple[int, int]]) -> Iterator[tuple[int, Any, bool]]:
    """Each with whether it is the head: the first of its endpoint and user, if none is open."""
    for endpoint_id, event in wanted:
        pair = (endpoint_id, event.user_id)
        yield endpoint_id, event, pair not in heads
        heads.add(pair)
