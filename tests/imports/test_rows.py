"""What a file may look like, and what is said of each line that is not like that."""

import datetime
import io

import pytest

from app.imports import order
from app.imports.order import RowsByUser, without_repeats
from app.imports.rows import BadFile, BadLine, Row, read_rows

NOW = datetime.datetime(2026, 11, 30, 12)  # noqa: DTZ001 - UTC, as the database has it
HEADER = "user_id,device_id,name,platform,metadata,registered_at,lease_seconds\n"


def read(text: str | bytes) -> list[Row | BadLine]:
    data = text if isinstance(text, bytes) else text.encode()
    file = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", errors="surrogateescape", newline="")
    return list(read_rows(file, NOW, default_lease_seconds=3600))


def the_row(line: str) -> Row:
    (row,) = read(HEADER + line)
    assert isinstance(row, Row), row
    return row


def the_reason(line: str) -> str:
    (bad,) = read(HEADER + line)
    assert isinstance(bad, BadLine), bad
    assert bad.line == 2
    return bad.reason


def test_a_line_has_the_types_of_the_api() -> None:
    row = the_row('18446744073709551615,a,  Ana ,ios,"{""n"": 1.0}",2026-11-30T09:30:00.5+02:00,60\n')
    assert row.key == (2**64 - 1, "a")
    assert row.described == {"name": "Ana", "platform": "ios", "metadata": {"n": 1.0}}
    assert row.registered_at == datetime.datetime(2026, 11, 30, 7, 30, 0, 500_000)  # noqa: DTZ001 - UTC
    assert row.lease_seconds == 60


def test_an_empty_cell_is_null_and_a_lease_that_no_column_has_is_the_default() -> None:
    empty = the_row("1,a,,,,,\n")
    assert (empty.described, empty.registered_at, empty.lease_seconds) == ({}, None, None)
    (row,) = read("device_id,user_id\na,1\n")
    assert isinstance(row, Row)
    assert row.lease_seconds == 3600


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=ascii)
def test_lines_are_counted_where_each_begins_quoted_line_ends_included(end: str) -> None:
    text = f'user_id,device_id,name{end}1,a,"one, ""two"""{end}{end}1,"b","x{end}y"{end}1,c,z{end}0,d,{end}'
    found = {row.line: row for row in read(text)}
    assert isinstance(found[2], Row)
    assert found[2].described["name"] == 'one, "two"'
    assert isinstance(found[4], BadLine)  # a line end is a control character
    assert isinstance(found[6], Row)
    assert isinstance(found[7], BadLine)
    assert list(found) == [2, 4, 6, 7]


def test_a_byte_order_mark_is_no_part_of_the_first_column() -> None:
    assert len(read(b"\xef\xbb\xbfuser_id,device_id\n1,a\n")) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1", "has 1 cells where the first line has 7"),
        (",,,,,,", "user_id: is empty; device_id: is empty"),
        ("0,a,,,,,", "user_id: must be 1 … 18446744073709551615, in decimal digits without leading zeros"),
        ("1,a b,,,,,", "device_id: must be 1 to 128 of the characters A-Z a-z 0-9"),
        (f"1,a,{'x' * 101},,,,", "name: must have at most 100 characters, not 101"),
        ("1,a,x\0,,,,", "name: must not have control characters"),
        ("1,a,,toaster,,,", "platform: Input should be 'ios', 'android'"),
        ("1,a,,,{,,", "metadata: "),
        ("1,a,,,[1],,", "metadata: Input should be a valid dictionary"),
        (f"1,a,,,{'[' * 5000},,", "metadata: "),
        ('1,a,,,"{""k"": [1]}",,', "metadata['k']: must be a string, a number, true, false or null"),
        ("1,a,,,,2026-11-30 09:30:00,", "registered_at: must be an instant such as 2026-11-30T09:30:00Z"),
        ("1,a,,,,2026-02-30T09:30:00Z,", "registered_at: "),
        ("1,a,,,,2026-11-30T12:00:01Z,", "registered_at: must not lie in the future"),
        ("1,a,,,,0001-01-01T00:00:00+10:00,", "registered_at: must not lie before 1970"),
        ("1,a,,,,,59", "lease_seconds: Input should be greater than or equal to 60"),
        ("1,a,,,,,1e3", "lease_seconds: must be a whole number of seconds"),
        ("x,a,,toaster,,,", "platform"),
        ('1,a,"x"y,,,,', "',' expected after '\"'"),
        ('1,a,"x,,,,\n1,b,,,,,\n', "a quote is opened and never closed"),
    ],
)
def test_a_bad_line_is_told_with_its_column_and_why(line: str, reason: str) -> None:
    assert reason in the_reason(line)


def test_a_line_that_is_not_utf_8_costs_no_other() -> None:
    bad, good = read(b"user_id,device_id,name\n1,a,\xff\n1,b,\xe6\x90\xba\xe5\xb8\xaf\n")
    assert bad == BadLine(2, "name: is not UTF-8")
    assert isinstance(good, Row)
    assert good.described["name"] == "携帯"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("42,phone-1\n", "user_id and device_id missing"),
        ("user_id;device_id\n", "user_id and device_id missing"),
        ("user_id,device_id,naem\n", "unknown column 'naem'"),
        ("user_id,device_id,revision\n", "unknown column 'revision'"),
        ("user_id,device_id,user_id\n", "names a column twice"),
    ],
)
def test_a_file_without_the_right_first_line_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(BadFile) as refused:
        read(text)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_utf_16_file_is_refused() -> None:
    with pytest.raises(BadFile):
        read("user_id,device_id\n1,a\n".encode("utf-16"))


@pytest.mark.parametrize("in_memory", [1, 3, 100])
def test_rows_come_back_by_user_and_age_however_few_fit_in_memory(
    monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(order, "ROWS_IN_MEMORY", in_memory)
    lines = [
        "2,young,,,,2026-11-03T00:00:00Z,",
        "10,only,,,,,",
        "2,now,,,,,",
        "2,old,名,,,2026-11-01T00:00:00Z,",
        "2,middle,,,,2026-11-02T00:00:00Z,",
        "1,x,,,,,",
        "2,now-too,,,,,",
    ]
    with RowsByUser() as rows:
        for row in read(HEADER + "\n".join(lines)):
            assert isinstance(row, Row)
            rows.add(row)
        found = list(rows)
    assert [row.device_id for row in found] == [
        "x", "old", "middle", "young", "now", "now-too", "only",
    ]  # fmt: skip
    assert found[1].described["name"] == "名"


def test_of_the_lines_about_one_device_the_oldest_counts() -> None:
    lines = ["1,a,,,,2026-11-02T00:00:00Z,", "2,a,,,,,", "1,a,,,,2026-11-01T00:00:00Z,", "1,A,,,,,"]
    with RowsByUser() as rows:
        for row in read(HEADER + "\n".join(lines)):
            assert isinstance(row, Row)
            rows.add(row)
        found = list(without_repeats(rows))
    assert [(one.line, isinstance(one, Row)) for one in found] == [
        (4, True),
        (2, False),
        (5, True),
        (3, True),
    ]
    assert found[1] == BadLine(2, "device_id: user 1 has this device on line 4 already")
