"""README.md and the pages that it leads to say what is so."""

import re
from pathlib import Path

import pytest
import typer

from app.auth.scopes import SCOPES
from app.cli import cli
from app.webhooks.service import MOST_ENDPOINTS
from bench.__main__ import app as benchmark

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = ["README.md", "SECURITY.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]
OPTIONS_OF_DOCKER_COMPOSE = {"--profile"}


def anchors(page: Path) -> set[str]:
    """Where a link into the page may lead: its headings, spelled as forges spell them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_each_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text())
    for path, anchor in links:
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), anchor


def test_each_scope_says_what_it_opens() -> None:
    table = README.partition("| scope | lets |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+:\w+)` \| (.*) \|$", table, re.MULTILINE)
    assert [scope for scope, _ in rows] == list(SCOPES)
    assert "nothing yet" not in table


def test_each_option_is_one() -> None:
    options = {
        option
        for command in typer.main.get_command(cli).commands.values()  # type: ignore[attr-defined] # it is a group
        for one in (command, *getattr(command, "commands", {}).values())
        for parameter in one.params
        for option in parameter.opts
    }
    # Those of scripts/test are among them.
    of_the_benchmark = {option for one in typer.main.get_command(benchmark).params for option in one.opts}
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", README))
    assert told - options - of_the_benchmark == OPTIONS_OF_DOCKER_COMPOSE


def test_the_number_of_webhook_endpoints_is_told() -> None:
    assert f"Up to {MOST_ENDPOINTS} endpoints" in README
    webhooks = (ROOT / "docs" / "webhooks.md").read_text()
    assert f"There\nmay be {MOST_ENDPOINTS} endpoints" in webhooks
