"""The command as its user meets it, on the embedded default."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.imports.files import counts, cupo_import, write

COLUMNS = "user_id,device_id,name,registered_at"


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder}/var/cupo.db"


@pytest.fixture
def rows(folder: Path) -> Iterator[sqlite3.Connection]:
    (folder / "var").mkdir()
    with closing(sqlite3.connect(folder / "var" / "cupo.db", isolation_level=None)) as connection:
        yield connection


def devices(rows: sqlite3.Connection) -> list[tuple[object, ...]]:
    return rows.execute("SELECT user_id, device_id FROM devices ORDER BY user_id, device_id").fetchall()


def test_names_platforms_metadata_and_instants_arrive_exactly(
    url: str, folder: Path, rows: sqlite3.Connection
) -> None:
    names = ["👨‍👩‍👧‍👦", "携帯", "𝌆", 'Büro "links", oben', "é" * 100]
    file = write(
        folder / "devices.csv",
        "user_id,device_id,name,platform,metadata,registered_at,last_seen_at,lease_seconds",
        [
            (2**64 - 1 - i, "a", name, "ios", '{"b": 1.0, "a": "名"}', "2026-01-02T03:04:05.678901Z", "", "")
            for i, name in enumerate(names)
        ],
    )
    done = cupo_import(url, file)
    assert (done.exit_code, counts(done.stdout)) == (0, {"imported": 5})
    found = rows.execute(
        "SELECT name, platform, metadata, registered_at, revision, expires_at FROM devices"
        " ORDER BY user_id DESC"
    ).fetchall()
    assert found == [
        (name, "ios", '{"b":1.0,"a":"名"}', "2026-01-02 03:04:05.678901", 1, None) for name in names
    ]
    told = rows.execute("SELECT type, actor, data, request_id FROM events ORDER BY id DESC").fetchall()
    assert {(event, actor) for event, actor, _, _ in told} == {("device.registered", "import")}
    assert len({request_id for *_, request_id in told}) == 1
    assert '"name":"携帯"' in told[1][2]


def test_bad_lines_are_told_and_the_rest_is_imported_with_status_1(
    url: str, folder: Path, rows: sqlite3.Connection
) -> None:
    file = write(
        folder / "devices.csv",
        COLUMNS,
        [
            (1, "a", "", ""),
            (0, "b", "", ""),
            (1, "c", "\x07", "yesterday"),
            (1, "a", "", ""),
            (2, "d", "", ""),
        ],
    )
    done = cupo_import(url, file)
    assert (done.exit_code, counts(done.stdout)) == (1, {"imported": 2, "bad lines": 3})
    assert devices(rows) == [(1, "a"), (2, "d")]
    told = [line for line in done.stderr.splitlines() if line.startswith("devices.csv:")]
    assert [line.split(" ")[:2] for line in told] == [
        ["devices.csv:3:", "user_id:"],
        ["devices.csv:4:", "name:"],
        ["devices.csv:5:", "device_id:"],
    ]
    assert "registered_at: must be an instant" in told[1]
    assert "\x07" not in done.stderr
    assert done.stderr.splitlines()[-1] == "2 of 2"


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(
    url: str, folder: Path, rows: sqlite3.Connection
) -> None:
    there = write(folder / "there.csv", COLUMNS, [(1, "a", "", ""), (2, "a", "", "")])
    assert cupo_import(url, there).exit_code == 0
    rows.execute("INSERT INTO device_blocks VALUES (2, 'blocked', '2026-01-01')")
    before = list(rows.iterdump())
    lines = [(1, "a", "", ""), (2, "blocked", "", ""), (0, "x", "", "")]
    lines += [(3, f"d-{number}", "", "") for number in range(1200)]
    file = write(folder / "devices.csv", COLUMNS, lines)
    done = cupo_import(url, file, "--dry-run", default_device_limit=1100)
    assert done.exit_code == 1
    assert counts(done.stdout) == {
        "would be imported": 1100,
        "already there": 1,
        "would be skipped, over the limit": 100,
        "would be skipped, blocked": 1,
        "bad lines": 1,
    }
    assert list(rows.iterdump()) == before
    really = cupo_import(url, file, default_device_limit=1100)
    assert counts(really.stdout) == {
        text.removeprefix("would be "): number for text, number in counts(done.stdout).items()
    }


def test_the_newest_beyond_the_limit_are_skipped_wherever_they_are_in_the_file(
    url: str, folder: Path, rows: sqlite3.Connection
) -> None:
    lines = [(1, "third", "", "2026-01-03T00:00:00Z"), (1, "now", "", "")]
    lines += [(2, f"d-{number}", "", "") for number in range(3)]
    lines += [(1, "first", "", "2026-01-01T00:00:00Z"), (1, "second", "", "2026-01-02T00:00:00Z")]
    done = cupo_import(url, write(folder / "devices.csv", COLUMNS, lines), default_device_limit=2)
    assert (done.exit_code, counts(done.stdout)) == (0, {"imported": 4, "skipped, over the limit": 3})
    assert devices(rows) == [(1, "first"), (1, "second"), (2, "d-0"), (2, "d-1")]
    assert "devices.csv:2: skipped: user 1 may have 2 devices" in done.stderr.splitlines()


def test_keep_imports_them_all_and_the_user_s_own_limit_counts_for_skip(
    url: str, folder: Path, rows: sqlite3.Connection
) -> None:
    lines = [(1, f"d-{number}", "", "") for number in range(4)]
    file = write(folder / "devices.csv", COLUMNS, lines)
    assert cupo_import(url, write(folder / "none.csv", COLUMNS, [])).exit_code == 0
    rows.execute("INSERT INTO user_quotas (user_id, device_limit, revision) VALUES (1, 1, 1)")
    assert counts(cupo_import(url, file).stdout) == {"imported": 1, "skipped, over the limit": 3}
    kept = cupo_import(url, file, "--over-limit", "keep")
    assert counts(kept.stdout) == {"imported": 3, "already there": 1}
    assert len(devices(rows)) == 4


def test_a_blocked_device_and_one_past_its_lease_are_skipped_and_told(
    url: str, folder: Path, rows: sqlite3.Connection
) -> None:
    assert cupo_import(url, write(folder / "none.csv", COLUMNS, [])).exit_code == 0
    rows.execute("INSERT INTO device_blocks VALUES (1, 'blocked', '2026-01-01')")
    lines = [(1, "blocked", "", ""), (2, "past", "2026-01-01T00:00:00Z", 60), (2, "leased", "", 86400)]
    file = write(folder / "devices.csv", "user_id,device_id,last_seen_at,lease_seconds", lines)
    done = cupo_import(url, file)
    assert counts(done.stdout) == {"imported": 1, "skipped, blocked": 1, "skipped, lease run out": 1}
    assert "devices.csv:2: skipped: device blocked is blocked for user 1" in done.stderr
    assert "devices.csv:3: skipped: the lease has run out" in done.stderr
    assert devices(rows) == [(2, "leased")]
    (lease,) = rows.execute("SELECT julianday(expires_at) - julianday(last_seen_at) FROM devices").fetchone()
    assert lease == pytest.approx(1)


def test_a_second_run_leaves_everything_as_it_is(url: str, folder: Path, rows: sqlite3.Connection) -> None:
    lines = [(user, f"d-{number}", "", "") for user in range(1, 500) for number in range(3)]
    file = write(folder / "devices.csv", COLUMNS, lines)
    assert counts(cupo_import(url, file).stdout) == {"imported": 1497}
    before = list(rows.iterdump())
    assert counts(cupo_import(url, file).stdout) == {"already there": 1497}
    assert list(rows.iterdump()) == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory"),
        (
            "1,a\n",
            "its first line must name the columns, at least user_id and device_id; user_id and device_id",
        ),
        ("user_id,device_id,colour\n", "unknown column 'colour'; known: user_id, device_id, name, platform"),
    ],
)
def test_bad_use_is_status_2_and_one_line(url: str, folder: Path, text: str | None, reason: str) -> None:
    file = folder / "devices.csv"
    if text is not None:
        file.write_text(text)
    refused = cupo_import(url, file)
    assert refused.exit_code == 2
    (line,) = [line for line in refused.stderr.splitlines() if line]
    assert line.startswith(f"cupo: {file}: {reason}")


def test_a_folder_and_an_unknown_option_are_bad_use(url: str, folder: Path) -> None:
    assert cupo_import(url, folder).exit_code == 2
    assert cupo_import(url, folder / "devices.csv", "--over-limit", "drop").exit_code == 2
