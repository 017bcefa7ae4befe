"""The pages quote what was kept, and nothing that was typed."""

from pathlib import Path

import pytest

from bench.result import read
from bench.scenarios import NAMES
from bench.table import markdown

ROOT = Path(__file__).parents[2]
PAGES = [page for page in ("docs/bench.md", "README.md") if "| load | against |" in (ROOT / page).read_text()]


def test_the_result_that_is_kept_is_of_everything() -> None:
    assert sorted(read(ROOT / "docs" / "bench.json").scenarios) == sorted(NAMES)


@pytest.mark.parametrize("page", ["docs/bench.md", *(page for page in PAGES if page != "docs/bench.md")])
def test_a_page_quotes_the_result_that_is_kept(page: str) -> None:
    assert markdown(read(ROOT / "docs" / "bench.json")) in (ROOT / page).read_text()
