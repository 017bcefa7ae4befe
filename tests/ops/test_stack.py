"""Alert rules, dashboard and runbook speak of what there is: series, labels, services, and each other."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from app import metrics
from tests.programs import PROMTOOL, program

ROOT = Path(__file__).parent.parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "cupo.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "cupo.json"
RUNBOOK = ROOT / "docs" / "operations.md"

# What Prometheus adds to each series, and what a histogram has.
ADDED_LABELS = {"job", "instance", "le"}
OF_A_HISTOGRAM = ("_bucket", "_count", "_sum")


def promtool(*arguments: str | Path) -> None:
    ended = subprocess.run(  # noqa: S603 - Debian's
        [program(PROMTOOL), *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def rules() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def queries_of_the_dashboard() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


def declared() -> dict[str, set[str]]:
    """The labels of each series that may be scraped, by its name in a query."""
    found: dict[str, set[str]] = {}
    for series in vars(metrics).values():
        if isinstance(series, MetricWrapperBase):
            (family,) = series.describe()
            suffixes = (
                OF_A_HISTOGRAM if family.type == "histogram" else ("_total" * (family.type == "counter"),)
            )
            for suffix in suffixes:
                found[family.name + suffix] = set(series._labelnames)  # noqa: SLF001 - told by nothing else
    assert found.keys() >= {"cupo_ready", "cupo_lock_wait_seconds_bucket", "cupo_registrations_total"}
    return found


def named(query: str) -> Iterator[tuple[str, set[str]]]:
    """Each series of a query, with the labels that it is selected by."""
    for name, selected in re.findall(r"\b(cupo_\w+)(\{.*?\}(?=[\[\s)]|$))?", query):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', selected)))


def grouped_by(query: str) -> set[str]:
    return {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", query) for label in labels.split(",")}


ALL_QUERIES = [*(rule["expr"] for rule in rules()), *queries_of_the_dashboard()]


@pytest.mark.parametrize("query", ALL_QUERIES)
def test_a_query_names_series_and_labels_that_exist(query: str) -> None:
    series, recorded = declared(), {rule["record"] for rule in rules() if "record" in rule}
    labels = set(ADDED_LABELS)
    for name, selected in named(query):
        assert name in series, query
        assert selected <= series[name] | ADDED_LABELS, query
        labels |= series[name]
    assert set(re.findall(r"\bcupo:[\w:]+", query)) <= recorded
    assert grouped_by(query) <= labels


def test_the_values_that_queries_select_exist() -> None:
    """A misspelt outcome would be a query that finds nothing, for ever."""
    known = {value for values in metrics.OUTCOMES.values() for value in values}
    for query in ALL_QUERIES:
        for value in re.findall(r'(?:outcome|kind|what)="([^"]+)"', query):
            assert value in known, query
    causes = {value for query in ALL_QUERIES for value in re.findall(r'cause=~"([^"]+)"', query)}
    assert causes == {"passed|untold", "lowered|imported"}


def test_no_series_is_declared_that_nobody_would_see() -> None:
    shown = {name for query in ALL_QUERIES for name, _ in named(query)}
    families = {re.sub("_(bucket|count|sum|total)$", "", name) for name in shown}
    there = {re.sub("_(bucket|count|sum|total)$", "", name) for name in declared()}
    assert there - families == {"cupo_build_info"}


def test_promtool_finds_nothing_wrong_with_configuration_and_rules() -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")
    promtool("check", "rules", RULES)


def test_each_alert_fires_when_it_must_and_only_then() -> None:
    promtool("test", "rules", PROMETHEUS / "cupo.rules.test.yml")
    cases = yaml.safe_load((PROMETHEUS / "cupo.rules.test.yml").read_text())["tests"]
    told = [
        (case["alertname"], bool(case["exp_alerts"]))
        for test in cases
        for case in test.get("alert_rule_test", [])
    ]
    for rule in alerts():
        assert (rule["alert"], True) in told, "no case in which it fires"
        assert (rule["alert"], False) in told, "no case in which it does not"


def test_promtool_can_read_every_query_of_the_dashboard(folder: Path) -> None:
    recorded = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries_of_the_dashboard())
    ]
    file = folder / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool("check", "rules", file)


def test_the_dashboard_is_laid_out_and_explained() -> None:
    taken: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


def test_grafana_is_given_the_dashboard_and_the_source_that_it_asks() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "cupo.yml").read_text())["providers"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    (variable,) = json.loads(DASHBOARD.read_text())["templating"]["list"]
    assert variable["current"]["value"] == source["uid"]
    assert source["url"] == "http://prometheus:9090"


def test_prometheus_scrapes_the_services_where_they_answer() -> None:
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    found = {
        (job["job_name"], name, lookup["port"])
        for job in scraped
        for lookup in job.get("dns_sd_configs", [])
        for name in lookup["names"]
    }
    port = services["worker"]["environment"]["CUPO_WORKER_METRICS_PORT"]
    assert found == {("cupo", "cupo", 8000), ("cupo-worker", "worker", port)}
    assert services["worker"]["environment"]["CUPO_HOST"] == "0.0.0.0"  # noqa: S104 - compared, not bound
    jobs = {job for query in ALL_QUERIES for job in re.findall(r'job="([^"]+)"', query)}
    assert jobs == {"cupo", "cupo-worker"}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_each_alert_has_a_place_in_the_runbook(rule: dict[str, Any]) -> None:
    sections = re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert rule["alert"] in sections
    assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_the_runbook_explains_no_alert_that_there_is_not() -> None:
    section = re.search(r"^## Alerts$(.*?)^## ", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    told = re.findall(r"^### (\w+)$", section[1], re.MULTILINE)
    assert told == [rule["alert"] for rule in alerts()]
    for each in re.split(r"^### ", section[1], flags=re.MULTILINE)[1:]:
        for part in ("**Means.**", "**Look at.**", "**Do.**"):
            assert part in each, each.splitlines()[0]


def test_the_registry_has_what_the_module_declares() -> None:
    names = {family.name for family in REGISTRY.collect() if family.name.startswith("cupo_")}
    assert {re.sub("_(bucket|count|sum|total)$", "", name) for name in declared()} == names
