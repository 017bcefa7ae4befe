"""What the table says of a result."""

from pathlib import Path

import pytest
from rich.console import Console

from bench.errors import BadUse
from bench.plan import Plan
from bench.result import Memory, Result, Sample, read
from bench.rows import complaints, lines
from bench.scenarios import SCENARIOS
from bench.table import markdown, show

RATES = {"cupo-1": 300.0, "cupo-2": 400.0, "naive": 50.0, "go": 250.0, "go-default": 200.0, "c": 800.0}


def sample(contestant: str, number: int, scenario: str = "spread-32", rate: float | None = None) -> Sample:
    measured = RATES[contestant] if rate is None else rate
    return Sample(scenario, contestant, number, measured, 10.0, 20.0, 300.0, 100.0, 20.0, 0.01)


def result(*scenarios: str, **others: object) -> Result:
    found = Result(
        "scripts/bench", Plan(rounds=2), "2026-11-30", 2, "Linux", [*scenarios], "MariaDB 10.11.19"
    )
    contestants = {one.name: one.contestants for one in SCENARIOS}
    for name in scenarios:
        for contestant in contestants.get(name, ()):
            rate = None if contestant.name in RATES else 1.0
            found.samples += [sample(contestant.name, number, name, rate) for number in (1, 0)]
    for name, value in others.items():
        setattr(found, name, value)
    return found


def test_the_better_worker_count_decides() -> None:
    naive, go, go_default, c = lines(result("spread-32"))
    assert (naive.by_workers, naive.best) == (("6.00 (6.00 … 6.00)", "8.00 (8.00 … 8.00)"), 2)
    assert [line.is_met for line in (naive, go, go_default, c)] == [True, True, None, False]
    assert list(complaints(result("spread-32"))) == [
        "SPREAD, 32 connections, against the statements from C, no HTTP: wanted is ≥ 0.65"
    ]


def test_of_a_latency_less_is_better() -> None:
    found = result("latency")
    assert [line.is_met for line in lines(found)] == [True]
    slow = [Sample("latency", "cupo-1", number, 1, 10.6, 20, 1, 1, 1, 0) for number in range(2)]
    found.samples = [one for one in found.samples if one.contestant != "cupo-1"] + slow
    (line,) = lines(found)
    assert (line.by_workers, line.is_met) == (("1.06 (1.06 … 1.06)", ""), False)


def test_a_sample_that_failed_makes_its_rows_invalid_and_no_others() -> None:
    found = result("spread-32")
    found.samples[-1] = Sample("spread-32", "c", 0, 0, None, None, 0, 0, 0, 0, failure="it broke")
    assert [line.complaint for line in lines(found)] == [None, None, None, "INVALID: c: it broke"]
    assert "the statements from C, no HTTP | **INVALID** |  | ≥ 0.65 |  |" in markdown(found)
    assert "it broke" in markdown(found)


def test_what_could_not_be_measured_is_told_and_not_left_out() -> None:
    found = result("hot", not_run={"go": "no go here"})
    assert list(complaints(found)) == [
        "HOT, 32 connections, against Go, `interpolateParams=true`: not measured: go: no go here"
    ]


def test_a_run_that_was_interrupted_has_no_ratio_of_what_it_did_not_do() -> None:
    found = result("hot", "memory")
    found.samples = [one for one in found.samples if one.contestant != "go" or one.round == 0]
    assert [line.complaint for line in lines(found)] == [
        "not measured: go: the run was ended before",
        "not measured: the run was ended before",
    ]


@pytest.mark.parametrize(
    ("memory", "is_met"),
    [
        (Memory(600, 90, 120, 120, 4), True),
        (Memory(600, 90, 151, 151, 4), False),
        (Memory(600, 90, 120, 120, 6), False),
        (Memory(600, 90, 91, 151, 0), False),
        (Memory(10, 90, 91, 91, 60), True),
    ],
)
def test_memory_has_a_bound_and_must_be_flat(memory: Memory, is_met: bool) -> None:
    assert [line.is_met for line in lines(result("memory", memory=memory))] == [is_met]


def test_the_filled_databases_size_is_in_its_row() -> None:
    assert lines(result("filled"))[0].load == (
        "SPREAD, 32 connections, 10,000,000 devices of 3,000,000 users there"
    )


def test_a_result_is_kept_and_told_again_just_so(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    found = result("spread-32", "memory", memory=Memory(600, 90, 120, 120, 4), not_run={"go": "no go"})
    kept.write_text(found.to_json())
    assert read(kept) == found
    assert markdown(read(kept)) == markdown(found)


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"plan": {}}', '{"plan": 3}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str | None) -> None:
    kept = tmp_path / "kept.json"
    if text is not None:
        kept.write_text(text)
    with pytest.raises(BadUse, match="is not a kept result"):
        read(kept)


def test_a_page_has_ratios_and_no_rates_and_the_terminal_has_both(capsys: pytest.CaptureFixture[str]) -> None:
    found = result("spread-32")
    page = markdown(found)
    assert "**8.00 (8.00 … 8.00)**" in page
    assert "2026-11-30, MariaDB 10.11.19, 2 processors" in page
    assert "400" not in page
    show(found, Console(width=200))
    said = capsys.readouterr().out
    assert "400" in said
    assert "measure again" not in said
    found.samples[0] = Sample("spread-32", "cupo-1", 0, 300, 1, 1, 1, 1, 1, others_share=0.4)
    show(found, Console(width=200))
    assert "measure again" in capsys.readouterr().out


def test_a_run_onto_a_kept_result_renews_what_it_measured_and_keeps_the_rest() -> None:
    kept, newer = result("hot", "latency"), result("hot")
    newer.command = "scripts/bench --only hot"
    newer.samples = [sample("go", 0, "hot", 7.0)]
    both = newer.onto(kept)
    assert both.samples_of("hot", "go") == newer.samples
    assert both.samples_of("latency", "cupo-1") == kept.samples_of("latency", "cupo-1")
    assert (both.command, both.scenarios) == (
        "scripts/bench; scripts/bench --only hot",
        ["hot", "latency"],
    )
