"""The command as an operator or a script meets it."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from app.audit.run import rows_to_read
from app.cli import cli
from app.db import Database
from app.migrations import migrate
from app.settings import Settings, load_settings
from loadtest.ports import free_port
from tests.audit.looks import cupo_audit
from tests.lifecycle.rows import run
from tests.proxy import Fate, proxied
from tests.servers import Server, fresh_database
from tests.services import ROOT_KEY
from tests.use_cases import register

SECRET = "a-secret-that-nobody-may-see"


def environment_of(url: str) -> Mapping[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    return ours | {"CUPO_DATABASE_URL": url, "CUPO_LOCK_BUDGET_SECONDS": "2"}


def test_the_numbers_come_last_and_nothing_else_is_said_without_a_terminal(
    own: Settings, own_db: Database
) -> None:
    own_db.transact(register, 1, "a")
    result = cupo_audit(own)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["0"] * 7
    assert re.fullmatch(r" +[\d,]+  rows in \d+\.\d s", lines[-1])


def test_a_terminal_has_a_bar_and_the_output_has_none(own: Settings) -> None:
    master, terminal = pty.openpty()
    ended = subprocess.run(
        [sys.executable, "-m", "app", "audit"],
        env={**environment_of(own.database_url.get_secret_value()), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        check=False,
    )
    os.close(terminal)
    drawn = os.read(master, 65536)
    os.close(master)
    assert ended.returncode == 0
    assert b"auditing" in drawn
    assert b"\x1b" not in ended.stdout


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"CUPO_PROT": "1"}, "CUPO_PROT: is not a setting of Cupo"),
        ({"CUPO_DATABASE_URL": f"mysql+pymysql://u:{SECRET}@127.0.0.1:{free_port()}/d"}, "does not answer"),
        ({"CUPO_DEFAULT_DEVICE_LIMIT_SINCE": "yesterday"}, "CUPO_DEFAULT_DEVICE_LIMIT_SINCE: "),
        ({"CUPO_DEFAULT_DEVICE_LIMIT_SINCE": "2026-11-30T09:30:00"}, "timezone"),
    ],
)
def test_what_cannot_be_looked_at_ends_with_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], says: str
) -> None:
    monkeypatch.setattr("app.audit.command.PATIENCE_SECONDS", 2)
    with chdir(folder):
        result = CliRunner().invoke(cli, ["audit"], env=settings)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert SECRET not in result.stderr


def test_a_database_without_tables_ends_with_2(server: Server) -> None:
    with fresh_database(server, "cupo_test_audit_empty") as url:
        result = CliRunner().invoke(cli, ["audit", "--json"], env={"CUPO_DATABASE_URL": url})
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_lost_connection_costs_a_page_and_not_the_audit(own: Settings, own_db: Database) -> None:
    own_db.transact(register, 1, "a")
    lost: list[str] = []

    def cut_once(statement: str) -> Fate:
        if "FORCE INDEX (events_by_user)" in statement and not lost:
            lost.append(statement)
            return Fate.CUT_AFTER
        return Fate.PASS

    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        proxy.fate = cut_once
        result = CliRunner().invoke(cli, ["audit"], env={"CUPO_DATABASE_URL": url})
    assert (result.exit_code, len(lost)) == (0, 1)


def test_ctrl_c_ends_it_with_130_and_no_traceback(own: Settings) -> None:
    with proxied(own.database_url.get_secret_value()) as (proxy, url):
        proxy.fate = lambda statement: (
            proxy.freeze() or Fate.PASS if "FORCE INDEX (PRIMARY)" in statement else Fate.PASS  # type: ignore[func-returns-value]
        )
        with subprocess.Popen(
            [sys.executable, "-m", "app", "audit"],
            env=environment_of(url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as audit:
            while not any("FORCE INDEX (PRIMARY)" in one for one in list(proxy.statements)):
                assert audit.poll() is None
            audit.send_signal(signal.SIGINT)
            said, complained = audit.communicate(timeout=30)
    assert (audit.returncode, said, complained) == (130, "", "cupo: Stopped before the end.\n")


def test_how_much_there_is_to_read_is_estimated_by_the_server(
    own_db: Database, rows: Engine, folder: Path
) -> None:
    for user in range(1, 11):
        own_db.transact(register, user, "a")
    run(rows, "ANALYZE TABLE devices, events, device_registration_locks")
    assert rows_to_read(own_db) == 40
    embedded = load_settings(database_url=f"sqlite:///{folder}/cupo.db", root_key=ROOT_KEY)
    migrate(embedded)
    db = Database(embedded)
    assert rows_to_read(db) is None
    db.close()
