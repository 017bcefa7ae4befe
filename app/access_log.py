"""The line that uvicorn logs for each call, without what callers wrote into the address."""

import logging
import re

# The fixed words of our addresses; any other segment may be anything, a token in the wrong place too.
WORDS = frozenset(
    {
        "",
        "allow",
        "api-keys",
        "assets",
        "devices",
        "docs",
        "events",
        "heartbeat",
        "livez",
        "openapi.json",
        "problems",
        "quota",
        "readyz",
        "transfer",
        "users",
        "v1",
    }
)
_USER_ID = re.compile("[0-9]{1,20}")


class WithoutValues(logging.Filter):
    """`GET /v1/users/42/devices/…`: the query is left out, and so is each segment that is no word of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, target, version, status = record.args
            record.args = (client, method, without_values(str(target)), version, status)
        return True


def without_values(target: str) -> str:
    segments = target.partition("?")[0].split("/")
    return "/".join(one if one in WORDS or _USER_ID.fullmatch(one) else "…" for one in segments)
