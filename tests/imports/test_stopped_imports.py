"""Imports that are stopped in the middle, on a real server: the same command goes on from there."""

import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from app.imports import run
from app.tables import devices, events
from tests.imports.files import a_file, counts, start_import
from tests.lifecycle.trail import devices_of

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
