"""Imports that are stopped in the middle, on a real server: the same command goes on from there."""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from app.imports import command, run
from app.tables import devices, events
from loadtest.ports import LOOPBACK, free_port
from tests.imports.files import a_file, counts, cupo_import, start_import
from tests.lifecycle.trail import devices_of
from tests.proxy import proxied

pytestmark = pytest.mark.locking

PATIENCE_SECONDS = 60


def count_rows(auditor: Engine, users: Sequence[int]) -> tuple[int, int]:
    """Devices and events of users that follow each other."""
    with auditor.connect() as connection:
        devices_there, told = (
            connection.execute(
                select(func.count()).select_from(table).where(table.c.user_id.between(users[0], users[-1]))
            ).scalar_one()
            for table in (devices, events)
        )
    return devices_there, told


@pytest.fixture
def many_users(new_user: Callable[[], int]) -> list[int]:
    return [new_user() for _ in range(2000)]


def stop_in_the_middle(url: str, file: Path, how: signal.Signals) -> tuple[int, str]:
    """Send the signal after the first batches: exit status and summary."""
    with start_import(url, file) as process:
        assert process.stderr
        for line in process.stderr:
            if re.match(r"[\d,]+ of ", line):
                break
        process.send_signal(how)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said


def finish(url: str, file: Path) -> dict[str, int]:
    with start_import(url, file) as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    return counts(said)


def test_killed_in_the_middle_the_same_command_finishes_it_and_doubles_nothing(
    database_url: str, auditor: Engine, folder: Path, many_users: list[int]
) -> None:
    file = a_file(folder, many_users, devices_of_each=3)
    status, said = stop_in_the_middle(database_url, file, signal.SIGKILL)
    assert (status, said) == (-signal.SIGKILL, "")
    done, told = count_rows(auditor, many_users)
    assert 0 < done == told < 6000
    again = finish(database_url, file)
    # The killed one's last batch may have been committed after it was counted.
    assert again["already there"] >= done
    assert again["imported"] + again["already there"] == 6000
    assert count_rows(auditor, many_users) == (6000, 6000)
    for user in many_users[::100]:
        assert devices_of(auditor, user) == ["moved-in-0", "moved-in-1", "moved-in-2"]


def test_ctrl_c_ends_after_a_batch_and_tells_exactly_what_was_done(
    database_url: str, auditor: Engine, folder: Path, many_users: list[int]
) -> None:
    file = a_file(folder, many_users, devices_of_each=3)
    status, said = stop_in_the_middle(database_url, file, signal.SIGINT)
    done, told = count_rows(auditor, many_users)
    assert status == 130
    assert counts(said) == {"imported": done}
    assert 0 < done == told < 6000
    assert done % run.ROWS_AT_ONCE == 0
    assert finish(database_url, file) == {"imported": 6000 - done, "already there": done}


def test_ctrl_c_does_not_wait_for_a_database_that_is_away(folder: Path) -> None:
    file = a_file(folder, [1], devices_of_each=1)
    with start_import(f"mysql+pymysql://u:p@{LOOPBACK}:{free_port()}/cupo", file) as process:
        with pytest.raises(subprocess.TimeoutExpired):  # it goes on trying
            process.wait(5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert time.monotonic() - began < command.STOPPING_SECONDS + 2
    assert process.returncode == 130
    assert [line.partition(";")[0] for line in told.splitlines()] == [
        "cupo: Stopping after this batch",
        f"cupo: Stopped. {command.GO_ON}",
    ]


def test_ctrl_c_does_not_wait_for_a_database_that_is_silent(
    database_url: str, folder: Path, many_users: list[int], auditor: Engine
) -> None:
    file = a_file(folder, many_users, devices_of_each=3)
    with proxied(database_url) as (proxy, url), start_import(url, file) as process:
        assert process.stderr
        for line in process.stderr:
            if re.match(r"[\d,]+ of ", line):
                break
        proxy.freeze()
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
        assert time.monotonic() - began < command.STOPPING_SECONDS + 2
        assert process.returncode == 130
        proxy.thaw()
    again = finish(database_url, file)
    assert again["imported"] + again["already there"] == 6000
    assert count_rows(auditor, many_users) == (6000, 6000)


def test_a_lost_database_ends_it_with_a_status_of_its_own_and_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PATIENCE_SECONDS", 2)
    file = a_file(folder, [1], devices_of_each=1)
    done = cupo_import(f"mysql+pymysql://u:p@{LOOPBACK}:{free_port()}/cupo", file)
    assert done.exit_code == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("cupo: The database does not answer")
    assert "2003" in line
    assert line.endswith(command.GO_ON)
