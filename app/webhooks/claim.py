"""Claiming deliveries, and how claims end. docs/delivery_states.md says what the endpoints' locks are for."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from app.db import Database, Tx, uncertain_result
from app.errors import Contention
from app.webhooks import claim_queries, settle_queries
from app.webhooks.claim_queries import lock_endpoints
from app.webhooks.deliver import ATTEMPT_SECONDS, Attempt
from app.webhooks.deliveries import Delivery
from app.webhooks.fairness import choose
from app.webhooks.retry import MOST_ATTEMPTS, seconds_to_next_attempt
from app.webhooks.settle_queries import Settled, promote_followers

# Beyond the longest attempt: to begin it, and to settle it through a failover.
MARGIN_SECONDS = 15
LEASE_SECONDS = ATTEMPT_SECONDS + MARGIN_SECONDS
MOST_RESCUES = 100
MOST_ERROR_CHARACTERS = 500
MOST_ANSWER_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Settlement:
    """An attempt that was made, and what is to become of its delivery."""

    delivery: Delivery
    duration_ms: int
    settled: Settled
    is_gone: bool


def settlement(delivery: Delivery, attempt: Attempt) -> Settlement:
    """By the schedule of retries: made once, before the transaction that may run more than once."""
    if attempt.outcome == "delivered":
        state, delay_seconds = "delivered", None
    else:
        delay_seconds = seconds_to_next_attempt(delivery.attempts, attempt.retry_after_seconds)
        state = "discarded" if delay_seconds is None else "retrying"
    settled = Settled(
        state=state,
        status=attempt.status,
        error=None if attempt.error is None else attempt.error[:MOST_ERROR_CHARACTERS],
        answer=attempt.excerpt[:MOST_ANSWER_CHARACTERS] or None,
        delay_seconds=delay_seconds,
    )
    duration_ms = round(attempt.duration_seconds * 1000)
    return Settlement(delivery, duration_ms, settled, is_gone=attempt.outcome == "gone")


def claim(db: Database, token: str, free: int, most_in_flight: int) -> list[Delivery]:
    """Claim up to `free` deliveries, in the fair order. Each is to be sent at once, or given back.

    `token` names this claim and no other. Where nothing is due it writes nothing. Raises Unavailable (503).
    """
    due = db.transact(claim_queries.candidates, read_only=True)
    chosen = choose(due, free, most_in_flight)
    return db.transact(_claim_of, chosen, token, most_in_flight) if chosen else []


def _claim_of(tx: Tx, chosen: Counter[int], token: str, most_in_flight: int) -> list[Delivery]:
    """Counted once more under the locks: another worker may have claimed of the same endpoints meanwhile."""
    lock_endpoints(tx, chosen, serving=True)
    earlier: list[Delivery] | None = uncertain_result(tx)
    if earlier:  # this claim's earlier run may have committed, and nobody else knows its token
        kept = claim_queries.claimed_deliveries(tx, [one.id for one in earlier], token)
        if kept:
            return kept
    in_flight = claim_queries.in_flight(tx)
    room = Counter({one: most_in_flight - in_flight.get(one, 0) for one in chosen})
    ids = claim_queries.due_deliveries(tx, chosen & room)
    if not ids or not claim_queries.claim_if_due(tx, ids, token, LEASE_SECONDS):
        return []
    return claim_queries.claimed_deliveries(tx, ids, token)


def settle(tx: Tx, settlements: Sequence[Settlement]) -> frozenset[int]:
    """Write what became of the attempts. The deliveries whose claim was over, and which others own by now.

    Promotes those that stood behind what has ended. A receiver that says 410 is disabled. Safe to run again.
    Raises Contention (503) where somebody changes claimed rows without the lock.
    """
    lock_endpoints(tx, {one.delivery.endpoint.id for one in settlements})
    earlier: frozenset[int] | None = uncertain_result(tx)
    held = settle_queries.held_claims(tx, [one.delivery for one in settlements])
    if not held and earlier is not None:
        return earlier  # this one's earlier run has committed
    durations: dict[Settled, dict[Delivery, int]] = defaultdict(dict)
    for one in settlements:
        if one.delivery.id in held:
            durations[one.settled][one.delivery] = one.duration_ms
            if one.is_gone:
                settle_queries.disable_if_at(tx, one.delivery.endpoint)
    for settled, those in durations.items():
        if not settle_queries.settle_if_claimed(tx, those, settled):
            raise Contention
    promote_followers(tx, sorted(held))
    return frozenset(one.delivery.id for one in settlements).difference(held)


def give_back(tx: Tx, deliveries: Sequence[Delivery]) -> int:
    """Undo claims of what was not sent: how many."""
    lock_endpoints(tx, {one.endpoint.id for one in deliveries})
    given = [one.id for one in deliveries if settle_queries.give_back_if_claimed(tx, one)]
    if given:
        promote_followers(tx, given)
    return len(given)


def rescue(db: Database) -> int:
    """Take back what a lost worker has claimed, once the lease is over: how many. Raises Unavailable."""
    expired = db.transact(settle_queries.expired_claims, MOST_RESCUES, read_only=True)
    return db.transact(_rescue, expired) if expired else 0


def _rescue(tx: Tx, expired: dict[int, int]) -> int:
    lock_endpoints(tx, expired.values())
    rescued = settle_queries.rescue_if_expired(tx, list(expired), MOST_ATTEMPTS)
    if rescued:
        promote_followers(tx, list(expired))
    return rescued
