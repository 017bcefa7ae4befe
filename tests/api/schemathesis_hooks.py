"""What Schemathesis cannot know of this API from its document. Loaded by Schemathesis, not by pytest."""

# The environment of the other tests, in which mypy runs, has neither of the two.
import base64
import datetime
from typing import Any

import schemathesis  # type: ignore[import-not-found,unused-ignore]
from hypothesis import strategies as st  # type: ignore[import-not-found,unused-ignore]

# The document admits these calls, and each is refused for what is there, not for what was sent. Schemathesis
# takes 404 and 409 for such refusals by itself.
STATES = {
    (410, "device_expired"),
    (412, "precondition_failed"),
    (422, "idempotency_key_reused"),
}


LISTS = ("devices", "events", "api-keys", "webhook-endpoints", "webhook-deliveries")


def _cursor(of: str, instant: datetime.datetime, key: int) -> str:
    return base64.urlsafe_b64encode(f"{of}|{instant.isoformat()}|{key}".encode()).decode().rstrip("=")


# Opaque to callers, hence of no pattern. A number is a key of each list.
schemathesis.openapi.format(
    "cursor",
    st.builds(_cursor, st.sampled_from(LISTS), st.datetimes(), st.integers(0, 10**18 - 1)),
)
# Schemathesis draws headers of letters and digits, among which is no quotation mark.
schemathesis.openapi.format(
    "entity-tags",
    st.just("*") | st.lists(st.integers(0, 9).map('"{}"'.format), min_size=1, max_size=3).map(", ".join),
)

# Those of the public internet, which is what the document says in words.
_LABELS = st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True)
_PATHS = st.from_regex(r"(/[A-Za-z0-9._~-]{0,20}){0,3}", fullmatch=True)
schemathesis.openapi.format("uri", st.builds("https://{}.example{}".format, _LABELS, _PATHS))


@schemathesis.hook  # type: ignore[untyped-decorator,unused-ignore]
def filter_failure(_context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Whether `failure` is one."""
    if type(failure).__name__ == "UseAfterFree":  # a revoked key stays to be read, and says what it is
        return "/api-keys/" not in case.path or response.json().get("revoked_at") is None
    if type(failure).__name__ != "RejectedPositiveData":
        return True
    if case.path_parameters.get("user_id") == "me":  # it calls with a key, which is nobody's own
        return False
    refused = response.json()
    if any(one["detail"] == "is not a cursor of this list" for one in refused.get("errors", ())):
        return False
    return (response.status_code, refused.get("code")) not in STATES
