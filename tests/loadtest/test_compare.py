"""The command: what it finds, what it says and leaves behind, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from loadtest.compare.calls import Sample
from loadtest.compare.command import command_line
from loadtest.compare.command import compare as compare_command
from loadtest.compare.database import MARK, Address, Audit, audit, lab_database, lay_tables
from loadtest.compare.interleavings import INTERLEAVINGS
from loadtest.compare.measure import Measured, measure, percentile, result_of
from loadtest.compare.measure import Result as Tried
from loadtest.compare.page import page
from loadtest.compare.plan import LabPlan
from loadtest.compare.redis_server import private_redis, redis_client
from loadtest.compare.run import LabReport
from loadtest.compare.table import conclusion, markdown
from loadtest.errors import BadUse
from loadtest.strategies import Need, Outcome, Phase
from loadtest.strategies.catalogue import BY_NAME, STRATEGIES
from tests.processes import started
from tests.programs import REDIS, program
from tests.servers import Server

command = typer.Typer(add_completion=False)
command.command()(compare_command)

LAB = "cupo_test_lab"
RUN_SECONDS = 240
USERS = 8

pytestmark = pytest.mark.timeout(300)  # the one long run, on a machine that is busy with others


def compare(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-m", "loadtest.compare", *words],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


def in_this_process(*words: str, **environment: str) -> Result:
    """Quicker than a process of its own, for a command that ends before it has started any."""
    return CliRunner().invoke(command, list(words), env=environment)


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    return server.url("", server.admin_user)


@pytest.fixture(scope="module")
def address(url: str) -> Address:
    return Address.of(url, LAB)


def databases(address: Address) -> set[str]:
    with closing(replace(address, database=None).connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        return {str(row[0]) for row in cursor.fetchall()}


@pytest.fixture(scope="module")
def run(url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """All strategies, once for the module: a run that is short and still certain to break what must break."""
    folder = tmp_path_factory.mktemp("compare")
    given = ["--users", str(USERS), "--callers", "20", "--processes", "2", "--lab-database", LAB]
    written = ["--output", str(folder), "--markdown", str(folder / "compare.md")]
    return compare("--database-url", url, *given, *written), folder


@pytest.fixture(scope="module")
def found(run: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((run[1] / "compare.json").read_text(encoding="utf-8"))
    return said


@pytest.mark.locking
def test_every_strategy_behaves_as_expected(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = run
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    program(REDIS)
    assert "All as expected (strategies: 13, interleavings: 11)" in done.stdout


@pytest.mark.locking
@pytest.mark.parametrize("name", BY_NAME)
def test_a_strategy_breaks_for_those_it_must_break_for_and_no_others(
    name: str, found: dict[str, Any]
) -> None:
    strategy = next(one for one in found["strategies"] if one["name"] == name)
    if BY_NAME[name].needs is Need.REDIS:
        program(REDIS)
    if strategy["not_run"]:
        pytest.skip(strategy["not_run"])
    for phase in Phase:
        measured = strategy["phases"][phase]
        assert measured["calls"] == USERS * 20
        assert measured["gave_up"] == 0
        if phase in BY_NAME[name].breaks:
            assert measured["over_limit"] > 0
        else:
            assert (measured["over_limit"], measured["duplicates"], measured["lost"]) == (0, 0, 0)
            assert measured["most_devices"] == 2


@pytest.mark.locking
def test_the_lock_row_has_no_deadlocks_and_two_others_have_hundreds(found: dict[str, Any]) -> None:
    deadlocks = {
        one["name"]: sum(one["phases"][phase]["deadlocks"] for phase in Phase)
        for one in found["strategies"]
        if one["phases"]
    }
    assert deadlocks["lock_row"] == 0
    assert deadlocks["users_row"] == 0
    assert deadlocks["insert_ignore_lock_row"] > 100
    assert deadlocks["serializable"] > 100


def test_the_lab_leaves_no_database_behind(
    run: tuple[subprocess.CompletedProcess[str], Path], address: Address
) -> None:
    assert run[0].returncode == 0
    assert LAB not in databases(address)


def test_the_page_shows_everything_and_needs_nothing_from_elsewhere(
    run: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    html = (run[1] / "compare.html").read_text(encoding="utf-8")
    for strategy in STRATEGIES:
        assert f'id="{strategy.name}"' in html
    assert all(interleaving.name in html for interleaving in INTERLEAVINGS)
    assert html.count("<figure>") == 5
    assert not re.search(r"(?:src|href)=\"(?!#|data:)|https?://|<script|@import|url\(", html)


def test_the_markdown_has_a_row_for_each_strategy_and_says_how_it_was_measured(
    run: tuple[subprocess.CompletedProcess[str], Path], server: Server
) -> None:
    text = (run[1] / "compare.md").read_text(encoding="utf-8")
    assert server.version.partition("-")[0] in text
    assert "python -m loadtest compare --users 8" in text
    assert all(f"| `{strategy.name}` |" in text for strategy in STRATEGIES)
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| `")}
    assert len(widths) == 1


def test_without_redis_its_rows_say_so_and_the_rest_runs(url: str, tmp_path: Path) -> None:
    chosen = [word for name in ("redis_lock", "lock_row") for word in ("--only", name)]
    given = ["--users", "1", "--callers", "4", "--processes", "1", "--lab-database", LAB]
    done = compare(*chosen, *given, CUPO_DATABASE_URL=url, PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "redis_lock was not run: no Redis here" in done.stdout
    assert re.search(r"lock_row +holds +holds", done.stdout)


def test_a_redis_that_is_given_keeps_its_other_keys(url: str) -> None:
    program(REDIS)
    with private_redis() as server:
        assert server is not None
        with redis_client(server.url) as redis:
            redis.set("not-of-the-lab", "1")
            given = ["--users", "1", "--callers", "4", "--processes", "1", "--lab-database", LAB]
            done = compare("--only", "redis_lock", "--redis-url", server.url, *given, CUPO_DATABASE_URL=url)
            assert done.returncode == 0, done.stderr
            assert redis.keys() == [b"not-of-the-lab"]


def test_ctrl_c_tells_what_was_done_and_cleans_up(url: str, address: Address) -> None:
    words = [sys.executable, "-m", "loadtest.compare", "--users", "2000", "--processes", "2"]
    with started(
        [*words, "--lab-database", LAB, "--only", "lock_row", "--only", "users_row"],
        env={"PATH": os.environ["PATH"], "CUPO_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        assert "1/2" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        said, complaints = running.communicate(timeout=60)
    assert running.returncode == 130, complaints
    assert "Interrupted: 0 strategies done." in said
    assert "Traceback" not in complaints
    assert LAB not in databases(address)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--callers", "0"], "--callers must be 3"),
        (["--callers", "2"], "--callers must be 3"),
        (["--users", "0"], "--users must be at least 1"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--processes", "0"], "--processes must be at least 1"),
        (["--processes", "9", "--callers", "8"], "--processes (9)"),
        (["--only", "hope"], "no strategy 'hope'"),
        (["--callers", "900"], "max_connections"),
        (["--redis-url", "redis://127.0.0.1:1/", "--only", "redis_lock"], "no Redis to work with"),
        (["--redis-url", "nonsense", "--only", "redis_lock"], "no Redis to work with"),
        (["--database-url", "sqlite:///x.db"], "mysql+pymysql://"),
        (["--database-url", "mysql+pymysql://x@127.0.0.1:port/"], "cannot be read"),
        (["--database-url", "mysql+pymysql://x:y@127.0.0.1:1/"], "no database server to work with"),
        (["--database-url", f"mysql+pymysql://x:y@127.0.0.1/{LAB}"], "give it another --lab-database"),
        (["--output", "/proc/nowhere"], "cannot write the results"),
    ],
)
def test_bad_use_is_one_clear_line_and_status_2(words: list[str], complaint: str, url: str) -> None:
    told = in_this_process("--lab-database", LAB, *words, CUPO_DATABASE_URL=url)
    assert told.exit_code == 2
    assert complaint in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert told.stdout == ""


def test_no_database_url_is_one_clear_line_and_status_2() -> None:
    done = compare()
    assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (2, 1, "")
    assert "CUPO_DATABASE_URL" in done.stderr


def test_an_account_that_may_not_create_a_database_is_told_so(server: Server) -> None:
    if not server.is_private:
        pytest.skip("the given server has one account")
    told = in_this_process("--lab-database", LAB, "--database-url", server.url(""))
    assert (told.exit_code, len(told.stderr.splitlines())) == (2, 1)
    assert "may not create and drop the database" in told.stderr


def test_a_database_that_is_not_the_labs_is_left_alone(address: Address) -> None:
    with closing(replace(address, database=None).connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {LAB}")
        try:
            with pytest.raises(BadUse, match="is there and is not the lab's"), lab_database(address, 1):
                pass
            cursor.execute(f"CREATE TABLE {LAB}.precious (id INT)")
            with pytest.raises(BadUse, match="is there and is not the lab's"), lab_database(address, 1):
                pass
            cursor.execute(f"DROP TABLE {LAB}.precious")
        finally:
            cursor.execute(f"DROP DATABASE {LAB}")


def test_what_a_killed_run_left_is_made_anew_and_two_runs_do_not_meet(address: Address) -> None:
    with closing(replace(address, database=None).connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {LAB}")
        cursor.execute(f"CREATE TABLE {LAB}.{MARK} (id INT)")
        cursor.execute(f"CREATE TABLE {LAB}.lock_row_devices (id INT)")
    with lab_database(address, 1) as database:
        lay_tables(database, BY_NAME["lock_row"])
        with pytest.raises(BadUse, match="another run uses"), lab_database(address, 1):
            pass
    assert LAB not in databases(address)


def test_the_audit_finds_what_is_planted_in_the_tables(address: Address) -> None:
    strategy = BY_NAME["lock_row"]
    planted = [(1, "a"), (1, "b"), (1, "c"), (2, "a"), (2, "a"), (2, "b"), (3, "a"), (99, "x")]
    with lab_database(address, 1) as database, database.cursor() as cursor:
        lay_tables(database, strategy)
        cursor.executemany(strategy.devices.insert, planted)
        found = audit(database, strategy, range(1, 10), limit=2)
    assert (found.over_limit, found.most_devices, found.duplicates) == (1, 3, 1)
    told = [sample(user_id=3, device_id="a"), sample(user_id=4, device_id="a"), sample(user_id=4)]
    assert measure(told, found, users=9).lost == 1


def sample(
    user_id: int = 1, device_id: str = "d", took_seconds: float = 0.1, outcome: Outcome = Outcome.REFUSED
) -> Sample:
    told = Outcome.REGISTERED if device_id == "a" else outcome
    return Sample(user_id, device_id, 1.0, 1.0 + took_seconds, told, retries=1, deadlocks=1)


def result(name: str, over_limit: int, duplicates: int = 0) -> Tried:
    found = Audit(over_limit, 3, duplicates, frozenset())
    return result_of(
        BY_NAME[name],
        {phase: [sample(took_seconds=0.2), sample(took_seconds=0.4)] for phase in Phase},
        dict.fromkeys(Phase, found),
        users=5,
    )


def test_one_that_must_hold_and_broke_and_one_that_must_break_and_held_are_named() -> None:
    held = result("no_lock", over_limit=0)
    broke = result("lock_row", over_limit=1)
    doubled = result("users_row", over_limit=0, duplicates=1)
    report = LabReport(LabPlan(), "…", results=[held, broke, doubled, result("serializable", 0)])
    text = "\n".join(report.surprises)
    for words in (
        "no_lock must break for fresh",
        "lock_row must hold for known",
        "users_row must hold for known",
    ):
        assert words in text
    assert "serializable" not in text
    assert "not as expected" in page(report)
    assert "**breaks**" in markdown(report)
    assert conclusion(report) == report.surprises


def test_both_phases_are_one_measure() -> None:
    both = result("lock_row", over_limit=0).both
    assert isinstance(both, Measured)
    assert (both.users, both.calls, both.retries) == (10, 4, 4)
    assert both.elapsed_seconds == pytest.approx(0.8)
    assert (both.p50_seconds, both.p99_seconds) == pytest.approx((0.2, 0.4))
    assert both.per_thousand(both.deadlocks) == 1000


def test_percentiles_are_of_the_nearest_rank() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile([7.0], 0.99) == 7
    assert percentile([], 0.5) == 0


def test_the_same_seed_gives_each_caller_the_same_device_and_some_callers_repeat_others() -> None:
    devices = LabPlan(callers=20, seed=7).device_ids(5)
    assert devices == LabPlan(callers=20, seed=7).device_ids(5)
    assert devices != LabPlan(callers=20, seed=8).device_ids(5)
    assert len(devices) == 20
    assert len(set(devices)) == 16


def test_the_command_is_told_without_its_passwords() -> None:
    given = ["--database-url", "mysql://u:secret@h/", "--redis-url=redis://:secret@h/", "--users", "3"]
    given += ["--output", "there", "--seed", "4"]
    said = command_line(["compare", *given])
    assert said == "python -m loadtest compare --users 3 --seed 4"
