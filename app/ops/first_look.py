"""What is told of the database as the service starts: it may come later, and not all ask `/readyz`."""

import logging

from app.ops.checks import Check
from app.ops.health import Probe

log = logging.getLogger(__name__)


async def warn_unless_ready(probe: Probe) -> None:
    """One warning with what to do, where calls could not be answered now."""
    reason = why_not_ready(await probe.look())
    if reason is not None:
        log.warning("%s", reason)


def why_not_ready(checks: list[Check]) -> str | None:
    """What to mend first, for what else fails may come of it; None where the service can do its work."""
    failed = {check.name: check for check in checks if check.status == "fail"}
    if not failed:
        return None
    if "reachable" in failed:
        found = failed["reachable"].found
        return f"The database cannot be reached ({found}): calls are answered by 503 until it can"
    if "migrations" in failed:
        found = failed["migrations"].found
        return f"The database's schema is not this version's (it is at: {found}): run `cupo migrate`"
    first = next(iter(failed.values()))
    return f"The database is not fit: {first.name} is {first.found}, not {first.wanted}; see `cupo doctor`"
