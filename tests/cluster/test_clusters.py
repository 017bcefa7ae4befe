"""The clusters themselves: nothing of them is left behind, and a fault is the one that was asked for."""

import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtest.cluster import Cluster, ClusterError, NoNamespaces, open_cluster
from loadtest.cluster.command import app
from loadtest.cluster.network import new_network
from loadtest.cluster.nodes import until
from tests.cluster.races import Nodes

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 60
HELD = """
    import signal, sys, time
    from pathlib import Path
    from loadtest.cluster import clusters
    from loadtest.cluster.nodes import run_detached

    def stand_in(cluster):
        cluster.record.network.make()
        for node in cluster.nodes:
            run_detached(node.inside(("sleep", "1000")), node.log)

    clusters.launch = stand_in
    with clusters.start("galera", Path(sys.argv[1])):
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
"""


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout  # noqa: S607


def links() -> str:
    return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout  # noqa: S607


def is_alive(pid: int) -> bool:
    """A process that has ended has no command any more, also while its parent has not heard of it."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


@contextmanager
def held_by_a_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A cluster whose nodes do nothing, in a process that waits to be ended."""
    process = subprocess.Popen(  # noqa: S603 - the program above
        [sys.executable, "-c", textwrap.dedent(HELD), str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("cluster")  # which is skipped where no cluster can be had
def test_whoever_is_ended_leaves_no_node_no_network_and_no_folder(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "held"
    with held_by_a_process(folder) as process:
        network = open_cluster(folder).record.network
        assert network.tag in namespaces()
        assert network.tag in links()
        assert until(lambda: bool(network.processes(1)), PATIENCE_SECONDS)
        pids = network.processes(1)
        process.send_signal(number)
        process.wait(PATIENCE_SECONDS)
        assert until(lambda: not folder.exists(), PATIENCE_SECONDS)
    assert network.tag not in namespaces()
    assert network.tag not in links()
    assert not any(map(is_alive, pids))


def test_two_clusters_have_no_name_and_no_address_in_common(cluster: Cluster) -> None:
    other = new_network()
    assert other.tag != cluster.record.network.tag
    assert other.prefix != cluster.record.network.prefix


def test_the_services_account_has_the_rights_of_the_documentation_and_no_others(cluster: Cluster) -> None:
    granted = [row[0] for row in cluster.nodes[2].run("SHOW GRANTS FOR 'cupo'@'%'")]
    assert any("SELECT, INSERT, UPDATE, DELETE ON `cupo`.*" in grant for grant in granted)
    assert not any("ALL PRIVILEGES" in grant for grant in granted)


def test_passwords_are_for_nobody_else_to_read(cluster: Cluster) -> None:
    assert (cluster.folder / "cluster.json").stat().st_mode & 0o077 == 0
    assert cluster.record.passwords["cupo"] not in repr(cluster)


def test_a_node_is_not_started_twice(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="running already"):
        cluster.nodes[0].start()


def test_a_node_that_is_paused_answers_nothing_until_it_is_resumed(cluster: Cluster) -> None:
    cluster.nodes[2].pause()
    try:
        assert cluster.status()[3].state == "does not answer"
    finally:
        cluster.nodes[2].resume()
    cluster.wait_until_healthy(PATIENCE_SECONDS)


def test_the_command_knows_one_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["galera", "status"])
    assert ended.exit_code == 2
    assert ended.stderr == "cluster: no cluster in var/cluster-galera: start one with `up`\n"


def test_a_machine_that_makes_no_namespaces_is_told_of_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ip"
    program.write_text("#!/bin/sh\n[ $1 = -4 ] && exit\necho 'mount: not permitted' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(NoNamespaces, match=re.escape("not permitted. A cluster takes root")):
        new_network().make()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_node_that_was_killed_or_cut_off_comes_back_with_what_it_has_missed(
    cluster: Cluster,
    databases: Callable[..., Nodes],
    new_user: Callable[[], int],
    pytestconfig: pytest.Config,
) -> None:
    if pytestconfig.getoption("--server") in ("mariadb", "mysql"):
        pytest.skip("a minute: only where clusters are what is tested")
    nodes, user = databases(), new_user()
    cluster.nodes[1].kill()
    assert cluster.status()[2].state == "down"
    assert nodes.register(1, user, "while-killed", 2) == "created"
    cluster.nodes[1].start()
    assert nodes.devices(2, user) == ["while-killed"]
    cluster.partition(2)
    assert until(lambda: not cluster.status()[2].in_primary, PATIENCE_SECONDS)
    assert nodes.register(1, user, "while-cut-off", 2) == "created"
    cluster.heal()
    cluster.wait_until_healthy(PATIENCE_SECONDS)
    assert databases().devices(2, user) == ["while-cut-off", "while-killed"]
