"""Figures and files of samples."""

from pathlib import Path

import pytest

from loadtest.client import Sample
from loadtest.errors import BadUse
from loadtest.progress import Latencies
from loadtest.samples import as_text, figures, percentile, read_samples, write_samples
from tests.loadtest.histories import sample


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(n) for n in range(1, 1001)]
    assert [percentile(values, p) for p in (0, 50, 90, 99, 99.9, 100)] == [1, 500, 900, 990, 999, 1000]
    assert percentile([], 99) == 0


def test_latency_counts_from_when_the_call_was_due_not_from_when_it_was_sent() -> None:
    waited = Sample(1.0, 3.0, 3.5, "register", 1, "a", 201, "")
    early = Sample(1.0, 0.9, 1.5, "register", 1, "a", 201, "")
    assert waited.latency == 2.5
    assert early.latency == pytest.approx(0.6)


def test_answers_are_told_apart_by_action_status_and_code_winners_first() -> None:
    samples = [sample(409, 0, 1), sample(503, 0, 1), sample(201, 0, 1), sample(409, 0, 2), sample(0, 0, 30)]
    told = [(line.answer.label, line.calls) for line in figures(samples)]
    assert told[:2] == [("register 201", 1), ("register 409 device_limit_reached", 2)]
    assert set(told[2:]) == {("register timeout", 1), ("register 503 contention", 1)}


def test_samples_come_back_from_their_file(tmp_path: Path) -> None:
    samples = [sample(201, 0.25, 1.5), sample(0, 1, 2)]
    write_samples(tmp_path / "samples.jsonl", samples)
    assert read_samples(tmp_path / "samples.jsonl") == samples
    (tmp_path / "samples.jsonl").write_text('{"sent": 1}\n')
    with pytest.raises(BadUse, match=r"cannot be read as samples"):
        read_samples(tmp_path / "samples.jsonl")


def test_running_percentile_is_close_to_the_true_one() -> None:
    latencies = Latencies()
    for n in range(1, 10_001):
        latencies.add(n / 10_000)
    assert latencies.percentile(99) == pytest.approx(0.99, rel=0.03)


def test_durations_are_told_as_people_read_them() -> None:
    told = [as_text(seconds) for seconds in (0.000_85, 0.0123, 0.9996, 2.048, 61)]
    assert told == ["850 µs", "12.3 ms", "1 s", "2.05 s", "61 s"]
