"""What is made of samples, and how what the programs say is read."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.load import Answers, parse
from bench.measure import failure_of, parse_statements
from bench.memory import summary
from bench.processes import busy_seconds, filesystem_of, largest_resident_bytes, processor_seconds
from bench.scenarios import SCENARIOS
from bench.statistics import Ratio, ratio, slope
from tests.processes import started

SAID = """Running 1s test @ http://127.0.0.1:24000
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    68.50ms   23.10ms 147.55ms   71.23%
    Req/Sec   465.00     80.00   580.00     66.67%
  Latency Distribution
     50%  980.00us
     75%   81.84ms
     90%  101.21ms
     99%    1.02s{padding}
  930 requests in 2.00s, 160.00KB read
  Non-2xx or 3xx responses: 20
Requests/sec:    465.35
Transfer/sec:    158.42KB
rps=465 p50_ms=67.0 p99_ms=139.3 not2xx=20 broken=3
""".format(padding=" ")
SPREAD, HOT = SCENARIOS[0], next(one for one in SCENARIOS if one.load == "HOT")


def test_what_wrk_says_is_read() -> None:
    answers = parse(SAID, 2)
    assert answers == Answers(2, 465, refused=20, broken=3, p50_ms=0.98, p99_ms=1020)
    assert (answers.total, answers.registered_per_second) == (930, 455)


@pytest.mark.parametrize("said", ["", SAID.replace("broken=3", ""), SAID.replace("50%  980", "51%  980")])
def test_what_wrk_does_not_say_is_not_guessed(said: str) -> None:
    with pytest.raises(ValueError, match="wrk said"):
        parse(said, 2)


def test_what_the_peer_in_c_says_is_read() -> None:
    assert parse_statements("raw threads=32 tps=2290\n") == 2290
    with pytest.raises(ValueError, match="raw_limit said"):
        parse_statements("Unknown database 'peer'")


def test_a_ratio_is_of_medians_and_its_spread_of_rounds() -> None:
    # The first round ran while the machine had other work, which fell on both.
    assert ratio([50, 100, 120], [100, 200, 200]) == Ratio(0.5, 0.5, 0.6)


def test_a_slope_is_of_the_line_that_fits_best() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == 2
    assert slope([(0, 1)]) == 0


def test_growth_of_memory_is_that_of_the_second_half() -> None:
    points = [(float(at), 90.0 + at if at < 50 else 140 + at / 60) for at in range(100)]
    memory = summary(points, 100, 80.0)
    assert (memory.start_mb, memory.peak_mb) == (80, memory.end_mb)
    assert memory.growth_mb_per_10_minutes == pytest.approx(10)


def answers(per_second: float = 1000, refused: int = 0, broken: int = 0) -> Answers:
    return Answers(10, per_second, refused, broken, p50_ms=1, p99_ms=2)


def test_broken_connections_missing_rows_and_many_refusals_are_failures() -> None:
    assert failure_of(SPREAD, answers(), rows=10_000) is None
    assert failure_of(SPREAD, answers(refused=100), rows=9_900) is None
    assert failure_of(SPREAD, answers(broken=1), rows=10_000) == "1 broken or unanswered calls"
    assert failure_of(SPREAD, answers(per_second=0), rows=0) == "no answer"
    assert failure_of(SPREAD, answers(refused=300), rows=9_700) == "300 of 10000 answers were no 2xx"
    missing = "10000 answers were 2xx, and 9800 devices were registered"
    assert failure_of(SPREAD, answers(), rows=9_800) == missing
    assert failure_of(HOT, answers(refused=9_984), rows=0) is None


def test_processor_time_and_memory_are_those_of_a_whole_session() -> None:
    """The parent does nothing; its child has used half a second and holds 50 MB when it says so."""
    busy = (
        "import time\nheld = bytearray(b'x' * 50_000_000)\n"
        "while time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    before = busy_seconds()
    with started([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert processor_seconds(process.pid) >= 0.5
        assert 50e6 <= largest_resident_bytes(process.pid) < 100e6
        assert busy_seconds() - before >= 0.4
        os.killpg(process.pid, signal.SIGKILL)


def test_a_folder_in_memory_is_known(tmp_path: Path) -> None:
    assert filesystem_of(Path("/proc/self")) == "proc"
    assert filesystem_of(tmp_path) != "proc"
