"""SECURITY.md names tests that exist."""

import re
from pathlib import Path

from app.main import create_app
from app.settings import load_settings

ROOT = Path(__file__).parent.parent


def test_each_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text()))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))
    assert len(named) > 30
    assert named - there == set()


def test_each_threat_is_shown_by_a_test() -> None:
    table = (ROOT / "SECURITY.md").read_text().partition("## What shows it")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert [row for row in rows if "`test_" not in row] == []


def test_what_anybody_may_read_is_named() -> None:
    (row,) = re.findall(r"^\| anybody on the network.*$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    paths = create_app(load_settings(root_key="x" * 32)).openapi()["paths"]
    unguarded = {path for path in paths if not path.startswith("/v1/")}
    assert set(re.findall(r"`(/[\w./…]*)`", row)) - {"/docs", "/openapi.json", "/problems/…"} == unguarded
