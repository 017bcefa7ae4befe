"""The page in a real browser: verdict, plots, nothing fetched, nothing on the console."""

import re
from pathlib import Path

import pytest

from loadtest import page, record, timeline
from loadtest.client import Sample
from loadtest.invariants import Audit, Violation
from loadtest.record import Record
from tests.loadtest.browser import open_page
from tests.loadtest.histories import sample

HELD = Audit(users=1, rows=2, fullest=2, uncertain=1, violations=())
BROKEN = Audit(1, 3, 3, 0, (Violation("over_limit", 41, "3 devices in the table, the limit is 2"),))


def race(count: int = 300) -> list[Sample]:
    """Two winners, refusals that queue up behind them, one call that was never answered."""
    won = [sample(201, 0.001 * n, 0.05 + 0.01 * n, device=f"w{n}", user=41) for n in range(2)]
    refused = [sample(409, 0.002 * n, 0.1 + 0.004 * n, device=f"r{n}", user=41) for n in range(count)]
    return [*won, *refused, sample(0, 0.01, 2.0, device="<lost>", user=41)]


def run_of(audit: Audit, kind: str = "race") -> Record:
    facts = {"started": "2026-11-30 12:00:00 UTC", "command": "python -m loadtest race <&>", "seed": "7"}
    return Record(
        kind="race" if kind == "race" else "steady",
        limit=2,
        users=1,
        planned=303,
        unsent=0,
        on_time=303,
        interrupted=False,
        rate=0.0 if kind == "race" else 100.0,
        seconds=2.0,
        facts=facts,
        audit=audit,
    )


def written(folder: Path, run: Record, samples: list[Sample]) -> Path:
    path = folder / "report.html"
    path.write_text(page.page(run, samples, record.verdict(run, samples)), encoding="utf-8")
    return path


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_of_a_race_shows_verdict_and_plots_and_no_error(tmp_path: Path, dark: bool) -> None:
    opened = open_page(written(tmp_path, run_of(HELD), race()), tmp_path / "profile", dark=dark)
    assert opened.console == ()
    assert re.search(r'id="verdict"[^>]*>\s*<strong>✓ The limit held</strong>', opened.document)
    for plot in ("distribution", "percentiles", "answers", "latency", "timeline"):
        figure = re.search(rf'<figure[^>]*id="{plot}">(.*?)</figure>', opened.document, re.DOTALL)
        assert figure, plot
        assert re.match(r'<svg [^>]*role="img"', figure[1]), plot
        assert re.search(r"<(rect|path)", figure[1]), plot
    assert opened.document.count("<rect", opened.document.index('id="timeline"')) == 2 + 303


@pytest.mark.browser
def test_page_of_a_broken_steady_run_names_the_user(tmp_path: Path) -> None:
    opened = open_page(written(tmp_path, run_of(BROKEN, "steady"), race(20)), tmp_path / "profile")
    assert opened.console == ()
    assert "✕ The limit was broken for 1 user" in opened.document
    assert "user 41: over limit: 3 devices in the table, the limit is 2" in opened.document
    assert 'id="timeline"' not in opened.document


@pytest.mark.browser
def test_browser_would_have_complained(tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text('<script>nothing.there()</script><img src="http://example.invalid/a.png">')
    complaints = " ".join(open_page(path, tmp_path / "profile").console)
    assert "nothing is not defined" in complaints


def test_page_refers_to_nothing_outside_itself(tmp_path: Path) -> None:
    text = written(tmp_path, run_of(HELD), race()).read_text(encoding="utf-8")
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!data:,")', text)
    assert not re.search(r"url\(|@import", text)


def test_what_others_have_written_is_escaped(tmp_path: Path) -> None:
    text = written(tmp_path, run_of(HELD), race()).read_text(encoding="utf-8")
    assert "<lost>" not in text
    assert "race &lt;&amp;&gt;" in text


def test_run_without_samples_has_a_page_too(tmp_path: Path) -> None:
    assert "Nothing is proven" in written(tmp_path, run_of(HELD), []).read_text(encoding="utf-8")


def test_timeline_of_very_many_calls_keeps_every_winner() -> None:
    late = sample(201, 50, 51, device="late", user=41)
    calls = timeline.shown([*race(4000), late], 41)
    assert len(calls) == timeline.SHOWN_CALLS + 1
    assert late in calls


def test_hot_user_is_the_one_with_most_calls_and_of_several_the_lowest() -> None:
    samples = [sample(409, 0, 1, user=user) for user in (9, 5, 9, 5, 7)]
    assert timeline.hot_user(samples) == 5
