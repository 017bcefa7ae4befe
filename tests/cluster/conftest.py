"""One real cluster of three nodes, and the service's own connections to each of them."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.db import Database
from app.migrations import migrate
from app.settings import load_settings
from loadtest.cluster import Cluster, Kind, NoNamespaces, NotInstalled, start
from tests.cluster.races import Nodes
from tests.services import PATIENT, ROOT_KEY

KINDS: dict[str, Kind] = {"mariadb": "galera", "mysql": "group-replication"}
USERS_IN_SHORT = 15
USERS = 200
not_tested: list[str] = []


@pytest.fixture(scope="session")
def kind(pytestconfig: pytest.Config) -> Kind:
    """Galera beside the tests on MariaDB, Group Replication beside those on MySQL."""
    asked: str = pytestconfig.getoption("--server")
    return KINDS.get(asked) or ("galera" if asked == "galera" else "group-replication")


@pytest.fixture(scope="session")
def number_of_users(pytestconfig: pytest.Config) -> int:
    return USERS_IN_SHORT if pytestconfig.getoption("--server") in KINDS else USERS


@pytest.fixture(scope="package")
def cluster(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Healthy and migrated; in multi-primary mode where it is Group Replication.

    Gone before the tests after these: three idle nodes would take their processors.
    """
    with started_or_skipped(kind, tmp_path_factory.mktemp("cluster")) as cluster:
        migrate(load_settings(database_url=cluster.url(1, "cupo_migrate"), root_key=ROOT_KEY))
        cluster.wait_until_healthy(60)
        yield cluster


@contextmanager
def started_or_skipped(kind: Kind, folder: Path) -> Iterator[Cluster]:
    """Where namespaces may not be made, nothing can be shown here: the run says so at its end."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(start(kind, folder))
        except NoNamespaces as error:
            not_tested.append(str(error))
            pytest.skip(str(error))
        except NotInstalled as error:
            if os.environ.get("CI"):  # a test that did not look has not passed
                raise
            not_tested.append(str(error))
            pytest.skip(str(error))
        yield cluster


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in sorted(set(not_tested)):
        terminalreporter.section("NO CLUSTER WAS TESTED", red=True, bold=True)
        terminalreporter.write_line(reason)


@pytest.fixture
def databases(cluster: Cluster) -> Iterator[Callable[..., Nodes]]:
    """The service's pools, one for each node, with settings of the caller's choice."""
    with ExitStack() as stack:

        def connected(**settings: Any) -> Nodes:
            own: dict[str, Any] = {"root_key": ROOT_KEY, **PATIENT, **settings}
            pools = [
                Database(load_settings(database_url=cluster.url(node.number), **own))
                for node in cluster.nodes
            ]
            for pool in pools:
                stack.callback(pool.close)
            return Nodes(pools)

        yield connected
