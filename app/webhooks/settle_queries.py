"""The statements by which a claim ends: settled, given back, or rescued; and what follows from an end.

Each UPDATE names the state that it leaves. Whoever calls them holds the locks of the endpoints.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, case, delete, null, or_, select, tuple_, update
from sqlalchemy.sql.elements import ColumnElement

from app.db import Tx
from app.dialects import seconds_from_now, utc_now
from app.tables import events
from app.tables import webhook_deliveries as deliveries
from app.tables import webhook_endpoints as endpoints
from app.webhooks.deliveries import Delivery, Endpoint

_state = deliveries.c.state
_UNCLAIM: dict[str, Any] = {"claimed_by": null(), "claimed_until": null()}
# What an end takes away, whatever state it ends.
END: dict[str, Any] = {**_UNCLAIM, "head_user_id": null(), "due_at": null(), "ended_at": utc_now()}


@dataclass(frozen=True, slots=True)
class Settled:
    """What deliveries become after an attempt: `retrying` after `delay_seconds`, or an end."""

    state: str
    status: int | None = None
    error: str | None = None
    answer: str | None = None
    delay_seconds: float | None = None


def _held(deliveries_of_ours: Iterable[Delivery]) -> ColumnElement[bool]:
    """Claimed, and by the claims that these are of.

    Without the token, a worker that was paused past its lease would end what another is about to send.
    """
    claims = [(one.id, one.token) for one in deliveries_of_ours]
    return and_(
        deliveries.c.id.in_([delivery_id for delivery_id, _ in claims]),
        tuple_(deliveries.c.id, deliveries.c.claimed_by).in_(claims),
        _state == "claimed",
    )


def held_claims(tx: Tx, ours: Sequence[Delivery]) -> set[int]:
    """Those whose claims still hold. Their rival, the rescue, waits for the lock."""
    return set(tx.execute(select(deliveries.c.id).where(_held(ours))).scalars())


def settle_if_claimed(tx: Tx, durations: Mapping[Delivery, int], settled: Settled) -> bool:
    """Write what deliveries came to, and the milliseconds that each took; False unless all were ours."""
    in_ms = case({one.id: duration for one, duration in durations.items()}, value=deliveries.c.id)
    values: dict[str, Any] = {
        "state": settled.state,
        "last_status": settled.status,
        "last_duration_ms": in_ms,
        "last_error": settled.error,
        "last_answer": settled.answer,
    }
    if settled.delay_seconds is None:
        values |= END
    else:
        values |= _UNCLAIM | {"due_at": seconds_from_now(settled.delay_seconds)}
    return tx.execute(update(deliveries).where(_held(durations)).values(values)).rowcount == len(durations)


def give_back_if_claimed(tx: Tx, delivery: Delivery) -> bool:
    """Undo the claim of what was not sent: the attempt does not count. False if the claim is over."""
    values = {
        "state": "pending" if delivery.attempts == 1 else "retrying",
        "due_at": utc_now(),
        "attempts": delivery.attempts - 1,
        **_UNCLAIM,
    }
    return tx.execute(update(deliveries).where(_held([delivery])).values(values)).rowcount == 1


_is_expired = and_(_state == "claimed", deliveries.c.claimed_until <= utc_now())


def expired_claims(tx: Tx, limit: int) -> dict[int, int]:
    """Deliveries whose claim has run out, the longest first, each with its endpoint."""
    query = (
        select(deliveries.c.id, deliveries.c.endpoint_id)
        .with_hint(deliveries, "FORCE INDEX (webhook_deliveries_by_claim)", "mysql")
        .where(_is_expired)
    )
    return {row[0]: row[1] for row in tx.execute(query.order_by(deliveries.c.claimed_until).limit(limit))}


def rescue_if_expired(tx: Tx, ids: Sequence[int], most_attempts: int) -> int:
    """Take back claims whose time is over: how many. What has no attempt left is discarded.

    Its rival is the settle of a worker that was slow: whichever has the row first, the other finds it in
    another state.
    """
    expired = update(deliveries).where(deliveries.c.id.in_(ids), _is_expired)
    lost = "the worker that sent it was lost"
    again = expired.where(deliveries.c.attempts < most_attempts).values(
        state="retrying", due_at=utc_now(), last_status=None, last_error=lost, last_answer=None, **_UNCLAIM
    )
    ended = expired.values(state="discarded", last_status=None, last_error=lost, last_answer=None, **END)
    return tx.execute(again).rowcount + tx.execute(ended).rowcount


_next = deliveries.alias("next_of_user")
_follower = (
    select(_next.c.id)
    .where(
        _next.c.user_id == deliveries.c.user_id,
        _next.c.endpoint_id == deliveries.c.endpoint_id,
        _next.c.state == "waiting",
    )
    .order_by(_next.c.id)
    .limit(1)
    .scalar_subquery()
)
_is_erased = and_(deliveries.c.event_id.is_not(None), events.c.id.is_(None))
_outcomes = (
    select(deliveries.c.id, _is_erased.label("is_erased"), _follower.label("follower"))
    .outerjoin_from(deliveries, events, events.c.id == deliveries.c.event_id)
    .where(
        deliveries.c.id.in_(bindparam("ids", expanding=True)),
        or_(_state.in_(("delivered", "discarded")), _is_erased),
    )
)


def promote_followers(tx: Tx, ids: Sequence[int]) -> None:
    """After these may have ended: let those go on that stood behind them.

    Of an erased user, whose event is gone, the row goes as well, whatever its state: it was kept only because
    its attempt was under way. Reads one entry of `webhook_deliveries_by_user` for each.
    """
    outcomes = tx.execute(_outcomes, {"ids": ids}).all()
    erased = [row.id for row in outcomes if row.is_erased]
    if erased:
        tx.execute(delete(deliveries).where(deliveries.c.id.in_(erased)))
    followers = [row.follower for row in outcomes if row.follower is not None]
    if followers:
        promote_if_waiting(tx, followers)


def promote_if_waiting(tx: Tx, ids: Sequence[int]) -> int:
    """Make heads of them: how many. UNIQUE (endpoint_id, head_user_id) refuses a second head."""
    promoted = update(deliveries).where(deliveries.c.id.in_(ids), _state == "waiting")
    values = {"state": "pending", "due_at": utc_now(), "head_user_id": deliveries.c.user_id}
    return tx.execute(promoted.values(values)).rowcount


def disable_if_at(tx: Tx, endpoint: Endpoint) -> bool:
    """Disable an endpoint that said that it is gone, unless it was given another URL meanwhile."""
    asked = and_(endpoints.c.id == endpoint.id, endpoints.c.url == endpoint.url)
    disabled = update(endpoints).where(asked, endpoints.c.disabled_at.is_(None))
    values = {"disabled_at": utc_now(), "disabled_because": "gone", "revision": endpoints.c.revision + 1}
    return tx.execute(disabled.values(values)).rowcount == 1
