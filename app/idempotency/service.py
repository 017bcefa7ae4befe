"""One effect and one answer for all calls with the same Idempotency-Key."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from app.db import Tx, Work, uncertain_result
from app.dialects import named_lock
from app.errors import IdempotencyKeyInUse, IdempotencyKeyReused
from app.idempotency import queries
from app.idempotency.queries import Answer
from app.quotas.queries import lock_users

R = TypeVar("R")

REPLAYED = {"Idempotent-Replayed": "true"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A call that names a key. `users` are those whose locks its work takes; the answer tells of the last."""

    users: tuple[int, ...]
    scope_digest: bytes
    request_digest: bytes
    keep_seconds: int

    @property
    def tells_of(self) -> int:
        """The user with whom the answer goes when that user is erased."""
        return self.users[-1]

    @property
    def only_user(self) -> int | None:
        """With whom the answers to all calls with this key go; None where that may be different users."""
        return self.users[0] if len(self.users) == 1 else None

    def locking(self, *more: int) -> "Claim":
        """The same claim, where work takes the locks of more users than the one in the path."""
        return replace(self, users=(*self.users, *more))


def digest(*parts: str | bytes) -> bytes:
    """SHA-256 over the parts, each with its length, so that no two lists of parts are one text."""
    sum_of_parts = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sum_of_parts.update(len(data).to_bytes(8, "big") + data)
    return sum_of_parts.digest()


def once(tx: Tx, claim: Claim, render: Callable[[R], Answer], work: Work[R], *args: Any) -> Answer:
    """The answer that the first call with this key was given, or else run `work` and keep its answer.

    The answer is kept in the transaction of its effect: both are there, or neither. What raises is not kept,
    so after a refusal the same key may succeed. Takes the users' locks. Raises IdempotencyKeyInUse (409),
    IdempotencyKeyReused (422), and what work raises.
    """
    with named_lock(tx, f"cupo_key.{claim.scope_digest.hex()}") as is_first:
        if not is_first:
            raise IdempotencyKeyInUse
        lock_users(tx, *claim.users)
        kept = _kept_answer(tx, claim)
        if kept is not None:
            return kept
        # Nothing was kept, so no earlier run has committed, and work need not look for its traces.
        answer = render(work(tx.execution_options(uncertain_result=None), *args))
        queries.keep_answer(tx, claim.tells_of, claim.scope_digest, claim.request_digest, answer)
        return answer


def _kept_answer(tx: Tx, claim: Claim) -> Answer | None:
    """The key's answer; one that is too old is forgotten, and makes way for the next."""
    kept = queries.find_answer(tx, claim.scope_digest, claim.only_user, claim.keep_seconds)
    if kept is None:
        return None
    if not kept.is_fresh:
        queries.forget_answer(tx, claim.scope_digest, claim.only_user)
        return None
    if kept.request_digest != claim.request_digest:
        raise IdempotencyKeyReused
    if kept.answer == uncertain_result(tx):
        return kept.answer  # no replay: this call's earlier run gave it, and its uncertain COMMIT did happen
    return replace(kept.answer, headers=kept.answer.headers | REPLAYED)
