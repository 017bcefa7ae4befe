"""Who asked for a change, and why."""

from dataclasses import dataclass, replace

# The actor of `cupo import`.
IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Origin:
    """Goes into each event of the change. `actor` names a key or a part of the service, never a secret."""

    actor: str
    request_id: str
    reason: str | None = None

    def because(self, reason: str | None) -> "Origin":
        return replace(self, reason=reason)
