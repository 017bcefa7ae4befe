"""What is said of settings that cannot be meant: one line for each, which names the variable."""

import os
from collections.abc import Iterable
from typing import Any

from pydantic.fields import FieldInfo

PREFIX = "CUPO_"
# Read by scripts and tests, not by the service.
NOT_SETTINGS = frozenset({"CUPO_TEST_DATABASE_URL"})


def unknown_names(settings: Iterable[str]) -> list[str]:
    """Those of the environment that look like settings and are none."""
    known = {PREFIX + name.upper() for name in settings} | NOT_SETTINGS
    return sorted(
        name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known
    )


def complaint(error: Any, settings: dict[str, FieldInfo]) -> str:
    """Of one of pydantic's errors. Never shows a secret's value."""
    name = str(error["loc"][0])
    reason = error["msg"].removeprefix("Value error, ")
    field = settings.get(name)
    is_secret = field is not None and "SecretStr" in str(field.annotation)
    # The @: an address may have a password in it.
    is_shown = error["input"] is not None and not is_secret and "@" not in str(error["input"])
    shown = f" (given: {error['input']!r})" if is_shown else ""
    return f"{PREFIX}{name.upper()}: {reason}{shown}"
