"""What `/readyz`, `cupo doctor` and `/metrics` say of several nodes."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.ops.checks import Check, all_hold
from app.ops.health import Probe
from app.settings import Settings
from tests.routing.conftest import Pair, set_read_only, wait_until
from tests.scraping import scrape
from tests.services import ROOT_KEY

pytestmark = pytest.mark.locking
NOWHERE = "127.0.0.1:1"


def looked_at(settings: Settings) -> list[Check]:
    probe = Probe(settings)
    try:
        return asyncio.run(probe.look())
    finally:
        probe.close()


def failed(checks: list[Check]) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.found) for check in checks if check.status != "ok"}


def doctor(pair: Pair, *hosts: str, **settings: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit status, and what does not hold."""
    environment = {
        "CUPO_DATABASE_URL": pair.url,
        "CUPO_DATABASE_HOSTS": ",".join(hosts or pair.hosts),
        "CUPO_MULTI_WRITER": "on",
        "CUPO_ROOT_KEY": ROOT_KEY,
    }
    told = CliRunner().invoke(cli, ["doctor", "--json"], env=environment | settings)
    checks = json.loads(told.stdout)["checks"]
    return told.exit_code, {
        check["name"]: (check["status"], check["found"])
        for check in checks
        if check["status"] != "ok" and not check["name"].endswith("root key")
    }


@pytest.fixture
def read_only_node(pair: Pair) -> Iterator[str]:
    set_read_only(pair.servers[1], on=True)
    yield pair.hosts[1]
    set_read_only(pair.servers[1], on=False)


def test_one_fit_node_is_enough_to_be_ready(pair: Pair) -> None:
    assert failed(looked_at(pair.settings())) == {}
    checks = looked_at(pair.settings(pair.hosts[0], NOWHERE))
    assert failed(checks) == {"node 2": ("warn", "reachable: error 2003, cannot connect")}
    assert not all_hold(looked_at(pair.settings(NOWHERE, "127.0.0.1:2")))


def test_a_read_only_node_is_told_by_readyz_also_over_a_connection_from_before(pair: Pair) -> None:
    async def look_twice(probe: Probe) -> list[Check]:
        assert all_hold(await probe.look())
        set_read_only(pair.servers[1], on=True)
        return await probe.look()

    probe = Probe(pair.settings())
    try:
        found = failed(asyncio.run(look_twice(probe)))
        assert found == {"node 2": ("warn", "fit: the node is read-only")}
    finally:
        set_read_only(pair.servers[1], on=False)
        probe.close()


def test_doctor_tells_of_each_node_and_warns_of_one_that_is_away(pair: Pair, read_only_node: str) -> None:
    status, found = doctor(pair, *pair.hosts, NOWHERE)
    assert status == 0
    assert found == {
        f"{read_only_node}: reachable": ("warn", "error 1290, read-only"),
        f"{NOWHERE}: reachable": ("warn", "error 2003, cannot connect"),
    }
    status, found = doctor(pair, read_only_node, NOWHERE)
    assert status == 1
    assert {status for status, _ in found.values()} == {"fail"}


def test_doctor_fails_for_any_other_fault_of_a_node_that_is_there(pair: Pair) -> None:
    with pair.servers[1].admin_connection("cupo_test_routing") as admin:
        admin.exec_driver_sql("ALTER TABLE device_registration_locks ENGINE = MyISAM")
        try:
            status, found = doctor(pair)
        finally:
            admin.exec_driver_sql("ALTER TABLE device_registration_locks ENGINE = InnoDB")
    assert status == 1
    assert found[f"{pair.hosts[1]}: engine of device_registration_locks"] == ("fail", "MyISAM")


def test_servers_that_are_not_one_cluster_are_refused(pair: Pair) -> None:
    """Each would count its own devices. Of two of which only one may be written, that one counts."""
    strangers = ("fail", "2 servers that do not replicate to each other")
    assert failed(looked_at(pair.settings(multi_writer="auto"))) == {"one cluster": strangers}
    assert doctor(pair, CUPO_MULTI_WRITER="auto") == (1, {"one cluster": strangers})
    set_read_only(pair.servers[0], on=True)
    try:
        assert all_hold(looked_at(pair.settings(multi_writer="auto")))
    finally:
        set_read_only(pair.servers[0], on=False)


def test_metrics_have_a_series_for_each_node_and_the_log_a_line(
    pair: Pair, folder: Path, read_only_node: str, new_user: Callable[[], int]
) -> None:
    def up(url: str) -> dict[str, float]:
        found = scrape(url)
        return {host: found.value("cupo_database_node_up", node=host) for host in pair.hosts}

    with pair.service(folder) as service:
        wait_until(lambda: up(service.url) == {pair.hosts[0]: 1, read_only_node: 0})
        assert httpx.get(f"{service.url}/readyz").status_code == 200
        with service.client() as api:
            for _ in range(20):
                assert api.post(f"/v1/users/{new_user()}/devices", json={}).status_code == 201
        set_read_only(pair.servers[1], on=False)
        wait_until(lambda: up(service.url) == dict.fromkeys(pair.hosts, 1))
        log = service.logged()
    assert log.count(f"Database node {read_only_node} is taken out") == 1
    assert log.count(f"Database node {read_only_node} is in use again") == 1


def test_a_call_that_names_no_user_is_refused_as_ever(pair: Pair, folder: Path) -> None:
    with pair.service(folder) as service, service.client() as api:
        for user, status in (("0", 422), ("x", 422), ("me", 422), (str(2**64), 422), (str(2**64 - 1), 200)):
            assert api.get(f"/v1/users/{user}/devices").status_code == status, user
