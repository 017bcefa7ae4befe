"""The command as people use it: files, table, exit status, and one clear line where it is misused."""

import json
import re
import signal
import socket
import sqlite3
from pathlib import Path

import pytest

from loadtest.plan import MAX_USERS, Plan, parse_mix
from tests.loadtest.conftest import Command, StandIn, StartStandIn
from tests.services import ROOT_KEY

RACE = ("race", "--users", "3", "--calls", "120", "--processes", "2", "--concurrency", "20")


def test_race_that_holds_exits_0_and_leaves_samples_record_and_page(
    command: Command, standin: StandIn, tmp_path: Path
) -> None:
    words = (*RACE, "--limit", "2", "--seed", "201", "--out", "out")
    told = command(*words, url=standin.service.url, database_url=standin.database_url)
    assert told.status == 0, told
    assert "HOLDS The limit held" in told.out
    assert "6 × register 201" in told.out  # noqa: RUF001 - times
    lines = (tmp_path / "out" / "samples.jsonl").read_text().splitlines()
    assert len(lines) == 120
    assert set(json.loads(lines[0])) >= {"sent", "finished", "action", "user", "status", "code"}
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["facts"]["seed"] == "201"
    assert "--seed 201" in record["facts"]["command"]
    assert "The limit held" in (tmp_path / "out" / "report.html").read_text()
    for file in (tmp_path / "out").iterdir():
        assert ROOT_KEY not in file.read_text(), "secrets are not written"


def test_broken_limit_exits_1_names_the_user_and_report_says_so_again(
    command: Command, start_standin: StartStandIn
) -> None:
    with start_standin("no_limit") as broken:
        words = ("race", "--users", "1", "--calls", "20", "--processes", "2", "--concurrency", "10")
        told = command(
            *words, "--seed", "202", "--out", "out", url=broken.service.url, database_url=broken.database_url
        )
    user = Plan(202, 1, 1, 2, parse_mix("register=1")).first_user
    assert told.status == 1
    assert "BROKEN The limit was broken for 1 user" in told.out
    assert f"user {user}: over limit: 20 devices in the table, the limit is 2" in told.out
    again = command("report", "out")
    assert (again.status, again.out) == (1, told.out)


def test_run_without_one_usable_answer_proves_nothing(command: Command, start_standin: StartStandIn) -> None:
    with start_standin("unavailable") as down:
        told = command(*RACE, url=down.service.url, database_url=down.database_url)
    assert told.status == 2
    assert "UNPROVEN Nothing is proven" in told.out


def test_registrations_made_without_an_answer_are_no_violation(
    command: Command, start_standin: StartStandIn
) -> None:
    with start_standin("silent") as silent:
        told = command(
            *RACE, "--mix", "register=1,list=1", url=silent.service.url, database_url=silent.database_url
        )
    assert told.status == 0, told
    assert "6 calls had no usable answer" in told.out


def test_interrupted_run_ends_with_its_report(command: Command, standin: StandIn, tmp_path: Path) -> None:
    words = ("steady", "--rate", "50/s", "--ramp", "0s", "--duration", "60s", "--users", "10", "--out", "out")
    with command.start(*words, url=standin.service.url, database_url=standin.database_url) as process:
        assert process.stderr is not None
        line = process.stderr.readline()  # the first sign of progress
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert re.match(r"\d+ s  \d+/3000 calls  \d+/s  .*p99 ", line)
    assert process.returncode == 0
    assert "ended early" in out
    assert (tmp_path / "out" / "report.html").exists()


def test_second_run_of_a_seed_needs_its_users_emptied(command: Command, standin: StandIn) -> None:
    def run(*more: str) -> tuple[int, str]:
        words = (*RACE, "--seed", "203", *more)
        told = command(*words, url=standin.service.url, database_url=standin.database_url)
        return told.status, told.err

    assert run()[0] == 0
    status, error = run()
    assert status == 2
    assert error.startswith("loadtest: 3 of the run's users have devices already")
    assert run("--empty-first")[0] == 0


def test_unreachable_target_is_one_line(command: Command, standin: StandIn) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer there
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        told = command(*RACE, url=url, database_url=standin.database_url)
    assert told.status == 2
    assert re.fullmatch(rf"loadtest: no answer from {url}: .*refused\n", told.err)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("steady", "--rate", "0"), "--rate must be above 0, for example 300/s"),
        (("steady", "--rate", "quick"), "--rate 'quick' is not a rate: write 300/s or 18000/min"),
        (("steady", "--ramp", "9s", "--duration", "5s"), "--ramp must not be longer than --duration"),
        (("race", "--calls", "0"), "--calls must be 1 to 2,000,000, not 0"),
        (("race", "--users", "2000000"), f"--users must be 1 to {MAX_USERS:,}, not 2,000,000"),
        (("race", "--processes", "0"), "--processes must be 1 to 64, not 0"),
        (("race", "--mix", "delete=1"), "--mix 'delete=1' is not understood"),
        (("race", "--timeout", "soon"), "--timeout 'soon' is not a duration"),
        (("race", "--key", "another key"), "refuses the key (401): give --key or CUPO_ROOT_KEY"),
        (("race", "--key", ""), "no key: give --key or set CUPO_ROOT_KEY"),
        (("race", "--target", "localhost"), "--target 'localhost' is no address"),
        (("race", "--limit", "5"), "is 2, not 5: give --limit 2, or start the service with"),
        (("race", "--database-url", "postgresql://x/y"), "--database-url is not understood: write mysql"),
        (("race", "--database-url", "mysql+pymysql://u:p@127.0.0.1:no/d"), "--database-url cannot be read"),
        (("race", "--database-url", "mysql+pymysql://u:p@127.0.0.1:1/d"), "127.0.0.1:1/d cannot be audited"),
        (("race", "--database-url", "sqlite:///nothing.db"), "sqlite:///nothing.db cannot be audited"),
        (("race", "--out", "/dev/null/x"), "--out /dev/null/x cannot be made"),
        (("report", "nowhere"), "nowhere/run.json cannot be read as a run"),
    ],
)
def test_bad_use_is_one_line_and_exit_2(
    command: Command, standin: StandIn, words: tuple[str, ...], line: str
) -> None:
    given = set(words)
    url = "" if "--target" in given or "report" in given else standin.service.url
    told = command(*words, url=url, database_url=standin.database_url)
    assert told.status == 2
    assert told.err.count("\n") == 1
    assert line in told.err
    assert told.out == ""


def test_database_that_is_not_the_services_is_found_before_the_first_call(
    command: Command, standin: StandIn, tmp_path: Path
) -> None:
    tables = sqlite3.connect(tmp_path / "other.db")
    tables.execute("CREATE TABLE devices (user_id, device_id, registered_at)")
    tables.close()
    told = command(*RACE, url=standin.service.url, database_url=f"sqlite:///{tmp_path}/other.db")
    assert told.status == 2
    assert "a device registered there has no row here" in told.err
