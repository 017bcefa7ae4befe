"""The API explorer works without internet: in a browser, nothing is asked of anybody but the service."""

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from tests.programs import BROWSERS, program
from tests.services import Service

NAME = "cupo.example"  # not localhost: Swagger UI is discreet about that name alone
PATIENCE_SECONDS = 60


class References(HTMLParser):
    """What a page has the browser fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {"link": "href", "script": "src", "img": "src"}.get(tag)
        self.found += [value for name, value in attrs if name == wanted and value]


def test_the_page_refers_only_to_assets_that_are_served_here(service: Service) -> None:
    page = httpx.get(f"{service.url}/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    references = References(page.text).found
    assert len(references) == 3
    for reference in [*references, "/openapi.json"]:
        address = urljoin(service.url, reference)
        assert address.startswith(service.url)
        assert httpx.get(address).status_code == 200
    assert re.findall(r"https?://", page.text) == []


@pytest.mark.browser
def test_a_browser_shows_every_call_and_asks_nobody_else(service: Service, folder: Path) -> None:
    browser = program(BROWSERS)
    log = folder / "net.json"
    ended = subprocess.run(  # noqa: S603 - a browser, with our own page
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}",
            f"--host-resolver-rules=MAP {NAME} 127.0.0.1, MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            f"--log-net-log={log}",
            "--virtual-time-budget=10000",
            "--dump-dom",
            f"http://{NAME}:{urlsplit(service.url).port}/docs",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    shown = set(re.findall(r'id="operations-(?!tag-)[\w-]+-(\w+)"', ended.stdout))
    document = httpx.get(f"{service.url}/openapi.json").json()
    assert shown == {
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    }
    assert [line for line in ended.stderr.splitlines() if "CONSOLE" in line] == []
    asked = requests_of_the_page(json.loads(log.read_text()))
    assert f"http://{NAME}:{urlsplit(service.url).port}/openapi.json" in asked
    assert {urlsplit(address).hostname for address in asked} == {NAME}


def requests_of_the_page(log: dict[str, Any]) -> list[str]:
    """Addresses that the page had fetched. The browser's own requests have no origin."""
    started = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    return [
        event["params"]["url"]
        for event in log["events"]
        if event["type"] == started
        and event.get("params", {}).get("initiator", "").startswith("http")
        and not event["params"]["url"].startswith(("data:", "blob:"))
    ]
