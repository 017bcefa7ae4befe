"""What one call asked, when, and what it was told: the line of a history."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from loadtest.errors import BadUse

OPERATIONS = "operations.jsonl"

Kind = Literal["register", "revoke", "list", "quota", "set_limit"]

# Problems that promise that nothing was changed, although their status is that of an unknown outcome.
WITHOUT_EFFECT = frozenset({"contention", "overloaded", "token_keys_unavailable", "not_connected"})


class Quota(NamedTuple):
    """As an answer told it."""

    used: int
    limit: int


class Operation(NamedTuple):
    """One call on one user. Instants are seconds of one clock that all processes share and that never steps.

    `kind`: a repeat is a `register` of a device that is there, a replacement is a `register` with `replaced`.
    `limit` is what a `set_limit` asked for; None gives the user the limit again that it had at the start.
    `status` is 0 where no answer came, `code` the problem's or the client's word for why. `finished` is when
    the answer was there, or when the client gave up. `seen` are the devices that a `list` was told, all pages
    together only if there was one. `quota` is what any answer told of it: a `quota` or a `set_limit` in its
    body, a `register` in its 200, 201 or 409. That of a list's answer was read at another instant than its
    devices and does not belong here.

    A look at the rows themselves is a `list` like any other, with what looked as its process.
    """

    user: int
    process: str
    kind: Kind
    sent: float
    finished: float
    device: str = ""
    replaced: str = ""
    limit: int | None = None
    status: int = 0
    code: str = ""
    seen: tuple[str, ...] = ()
    quota: Quota | None = None

    @property
    def unknown(self) -> bool:
        """Whether it may have had its effect, or have it at any later time, although nobody was told."""
        return (self.status == 0 or self.status >= 500) and self.code not in WITHOUT_EFFECT


def write_operations(path: Path, operations: Iterable[Operation]) -> None:
    """One JSON object a line; what is as by default is left out."""
    with path.open("w", encoding="utf-8") as file:
        for operation in operations:
            file.write(as_line(operation) + "\n")


def as_line(operation: Operation) -> str:
    """Without the end of the line, for whoever appends while the run goes on."""
    fields = operation._asdict()
    told = {
        name: value for name, value in fields.items() if value != Operation._field_defaults.get(name, ...)
    }
    return json.dumps(told, separators=(",", ":"))


def read_operations(path: Path) -> list[Operation]:
    """Raises BadUse where the file is not what write_operations writes."""
    try:
        with path.open(encoding="utf-8") as file:
            return [_from(json.loads(line)) for line in file]
    except (OSError, ValueError, TypeError) as error:
        raise BadUse(f"{path} cannot be read as operations: {error}") from error


def _from(fields: dict[str, Any]) -> Operation:
    if "seen" in fields:
        fields["seen"] = tuple(fields["seen"])
    if "quota" in fields:
        fields["quota"] = Quota(*fields["quota"])
    operation = Operation(**fields)
    if not operation.sent <= operation.finished < math.inf:
        raise ValueError(f"an operation ends before it begins, or never: {fields}")
    return operation
