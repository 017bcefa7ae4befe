"""docs/webhooks.md says what is so."""

import re
import time
from pathlib import Path
from typing import Any

from app import __version__
from app.webhooks.deliver import ATTEMPT_SECONDS
from app.webhooks.retry import DELAYS_SECONDS
from app.webhooks.signing import new_key, signed_headers, spelled

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()


def test_the_python_receiver_takes_what_is_signed_and_refuses_the_rest() -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(source, "docs/webhooks.md", "exec"), names)  # noqa: S102 - our own page
    receive = names["receive"]
    (body,) = re.findall(r'^(\{"type":.*?\}\}\})$', PAGE, re.MULTILINE | re.DOTALL)
    body = body.replace("\n ", "").encode()
    key = new_key()
    headers = signed_headers([key], "evt_1042_7", int(time.time()), body)
    assert receive(spelled(key), headers, body) == (204, "evt_1042_7: device.revoked 3f6c1a50-phone")
    assert receive(spelled(new_key()), headers, body) == (400, None)
    assert receive(spelled(key), headers, body + b" ") == (400, None)
    assert receive(spelled(key), {}, body) == (400, None)


def test_the_schedule_and_the_bounds_are_those_of_the_code() -> None:
    said = re.search(r"comes again after (.*?), each", PAGE, re.DOTALL)
    assert said is not None
    waits = re.findall(r"(\d+) (s|min|h)", said[1])
    units = {"s": 1, "min": 60, "h": 3600}
    assert [int(number) * units[unit] for number, unit in waits] == list(DELAYS_SECONDS[1:])
    assert f"nothing within {ATTEMPT_SECONDS:g} s" in PAGE
    assert f"User-Agent: Cupo/{__version__}" in PAGE
