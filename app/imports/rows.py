"""The file: RFC 4180 in UTF-8, whose first line names the columns, and each line as a device or as bad."""

import csv
import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TextIO

from pydantic import BeforeValidator, ConfigDict, ValidationError, ValidationInfo
from pydantic_core import from_json

from app.devices.schemas import DeviceFields, LeaseSeconds, Metadata
from app.texts import SURROGATE, DeviceId, UserIdInBody

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_EARLIEST = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class BadFile(Exception):
    """Nothing of the file can be imported; its text is one line."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is left out, and why, each reason with its column where it has one."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Context:
    """What a line is read by: the database's clock, and the lease where the file has no such column."""

    now: datetime.datetime
    default_lease_seconds: int | None


def _past_instant(cell: str | None, validation: ValidationInfo) -> datetime.datetime | None:
    """In UTC, without time zone as the database has it. In the future nobody can have been seen."""
    if cell is None:
        return None
    if not _INSTANT.fullmatch(cell):
        raise ValueError("must be an instant such as 2026-11-30T09:30:00Z (RFC 3339)")
    instant = datetime.datetime.fromisoformat(cell.upper())  # ValueError: no such day or hour
    if instant < _EARLIEST:
        raise ValueError("must not lie before 1970")
    utc = instant.astimezone(datetime.UTC).replace(tzinfo=None)
    context: _Context | None = validation.context
    if context is not None and utc > context.now:
        raise ValueError(f"must not lie in the future: the database has {context.now}, UTC")
    return utc


def _whole_number(cell: str | None) -> int | None:
    if cell is None:
        return None
    if not re.fullmatch("[0-9]{1,10}", cell):
        raise ValueError("must be a whole number of seconds")
    return int(cell)


def _parsed(cell: str | None) -> Any:
    return None if cell is None else from_json(cell)


PastInstant = Annotated[datetime.datetime | None, BeforeValidator(_past_instant)]


class ImportedDevice(DeviceFields):
    """A device as a line has it: the types of the API, from text. Its fields are the columns of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user_id: UserIdInBody
    device_id: DeviceId
    metadata: Annotated[Metadata | None, BeforeValidator(_parsed)] = None
    registered_at: PastInstant = None
    last_seen_at: PastInstant = None
    lease_seconds: Annotated[LeaseSeconds | None, BeforeValidator(_whole_number)] = None


REQUIRED_COLUMNS = ("user_id", "device_id")
COLUMNS = (*REQUIRED_COLUMNS, *(name for name in ImportedDevice.model_fields if name not in REQUIRED_COLUMNS))


class Row:
    """A device, and the line on which it begins. `described` has the descriptive fields that are not null.

    A plain copy of the device: many lie in memory at once, where the model itself takes twice as much.
    """

    __slots__ = (
        "described",
        "device_id",
        "last_seen_at",
        "lease_seconds",
        "line",
        "registered_at",
        "user_id",
    )

    def __init__(self, line: int, device: ImportedDevice, default_lease_seconds: int | None = None) -> None:
        described = device.descriptive_fields()
        self.line = line
        self.user_id: int = device.user_id
        self.device_id: str = device.device_id
        self.described = {name: value for name, value in described.items() if value is not None}
        self.registered_at = device.registered_at
        self.last_seen_at = device.last_seen_at
        self.lease_seconds = (
            device.lease_seconds if "lease_seconds" in device.model_fields_set else default_lease_seconds
        )

    @property
    def key(self) -> tuple[int, str]:
        return self.user_id, self.device_id

    def end_of_lease(self, now: datetime.datetime) -> datetime.datetime | None:
        if self.lease_seconds is None:
            return None
        return (self.last_seen_at or now) + datetime.timedelta(seconds=self.lease_seconds)


def read_rows(
    file: TextIO, now: datetime.datetime, default_lease_seconds: int | None
) -> Iterator[Row | BadLine]:
    """Each line that is not blank, in the file's order. `now` is the database's clock.

    An empty cell is null; the default lease is for a file that has no such column.

    `file` is opened with `newline=""` and `errors="surrogateescape"`, so that a line that is not UTF-8 costs
    no other. Raises BadFile.
    """
    reader = csv.reader(file, strict=True)
    columns = _columns(reader)
    context = _Context(now, default_lease_seconds)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadLine(line, _quoting(error))
            continue
        if cells:
            yield _row(line, columns, cells, context)


def _columns(reader: Iterator[list[str]]) -> list[str]:
    wanted = f"its first line must name the columns, at least {' and '.join(REQUIRED_COLUMNS)}"
    try:
        columns = next(reader, [])
    except csv.Error as error:
        raise BadFile(f"line 1: {_quoting(error)}") from None
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    unknown = [name for name in columns if name not in COLUMNS]
    if missing:
        raise BadFile(f"{wanted}; {' and '.join(missing)} missing" if columns else f"is empty; {wanted}")
    if unknown:
        raise BadFile(f"unknown column {', '.join(map(ascii, unknown))}; known: {', '.join(COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise BadFile("its first line names a column twice")
    return columns


def _quoting(error: csv.Error) -> str:
    at_the_end = "unexpected end of data"
    return "a quote is opened and never closed" if str(error) == at_the_end else str(error)


def _row(line: int, columns: Sequence[str], cells: list[str], context: _Context) -> Row | BadLine:
    if len(cells) != len(columns):
        return BadLine(line, f"has {len(cells)} cells where the first line has {len(columns)}")
    given = {name: cell or None for name, cell in zip(columns, cells, strict=True)}
    not_text = [name for name, cell in given.items() if cell and SURROGATE.search(cell)]
    if not_text:
        return BadLine(line, "; ".join(f"{name}: is not UTF-8" for name in not_text))
    empty = [name for name in REQUIRED_COLUMNS if given[name] is None]
    if empty:
        return BadLine(line, "; ".join(f"{name}: is empty" for name in empty))
    try:
        device = ImportedDevice.model_validate(given, context=context)
    except ValidationError as invalid:
        return BadLine(line, "; ".join(map(_complaint, invalid.errors(include_url=False))))
    return Row(line, device, context.default_lease_seconds)


def _complaint(error: Any) -> str:
    """Without the value: it may be long, and may have what a terminal obeys."""
    column, *place = error["loc"]
    key = "".join(f"[{part!a}]" for part in place if part != "[key]")
    return f"{column}{key}: {error['msg'].removeprefix('Value error, ')}"
