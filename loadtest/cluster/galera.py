"""Galera, on Debian's MariaDB."""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from loadtest.cluster.network import NUMBERS, NotInstalled
from loadtest.cluster.nodes import INNER, Health, Node
from loadtest.cluster.threads import stopped
from loadtest.installations import cache_folder

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")
# A joiner runs these to fetch a donor's data; they are in a package that would bring a service with it.
SCRIPTS = ("wsrep_sst_rsync", "wsrep_sst_common")
# Half the time that a service's call has: a wait for the applier ends before its caller's does.
PROVIDER_OPTIONS = "gcache.size=64M;repl.causal_read_timeout=PT3S"
RECOVER_SECONDS = 60
APPLIERS = "SELECT tid FROM information_schema.processlist WHERE state LIKE 'wsrep applier%'"
_POSITION = re.compile(r"Recovered position:? *([0-9a-f-]{36}:-?\d+)")


class Galera:
    def options(self, node: Node, *, first: bool) -> tuple[str, ...]:
        addresses = ",".join(node.network.address(number) for number in NUMBERS)
        return (
            "--wsrep-on=ON",
            f"--wsrep-provider={provider()}",
            f"--wsrep-provider-options={PROVIDER_OPTIONS}",
            f"--wsrep-cluster-name={node.network.tag}",
            f"--wsrep-cluster-address=gcomm://{addresses}",
            f"--wsrep-node-name=node-{node.number}",
            f"--wsrep-node-address={node.host}",
            "--wsrep-sst-method=rsync",
            "--wsrep-slave-threads=2",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            *(("--wsrep-new-cluster", f"--init-file={INNER}/accounts.sql") if first else _position(node)),
        )

    def join(self, node: Node, *, first: bool) -> None:
        """It does so by itself."""

    def health(self, node: Node) -> Health:
        shown = node.look("SHOW GLOBAL STATUS LIKE 'wsrep_%'")
        found = {str(name): str(value) for name, value in shown}
        return Health(
            is_running=True,
            state=found.get("wsrep_local_state_comment", "?"),
            size=int(found.get("wsrep_cluster_size", 0)),
            in_primary=found.get("wsrep_cluster_status") == "Primary",
            takes_writes=found.get("wsrep_ready") == "ON",
        )

    def blocked_applier(self, node: Node) -> contextlib.AbstractContextManager[None]:
        """Its threads are stopped: SQL that holds them back would hold back the node's own writes too."""
        return stopped([int(row[0]) for row in node.look(APPLIERS)])


def provider() -> str:
    """Galera's library. Raises ClusterError where it, or what it needs, is missing."""
    found = next((path for path in PROVIDERS if Path(path).exists()), None)
    if found is None or shutil.which("rsync") is None:
        raise NotInstalled("no Galera here: install the packages galera-4 and rsync, or run scripts/cluster")
    return found


def copy_scripts(folder: Path) -> None:
    """Into `folder`, where the account of the servers may read them."""
    unpacked = cache_folder() / "mariadb-server" / "usr" / "bin"
    path = os.pathsep.join((str(unpacked), os.environ.get("PATH", ""), "/usr/bin"))
    folder.mkdir()
    for name in SCRIPTS:
        script = shutil.which(name, path=path)
        if script is None:
            raise NotInstalled(f"no {name} here: install the package mariadb-server, or run scripts/cluster")
        shutil.copy(script, folder)


def _position(node: Node) -> tuple[str, ...]:
    """Where a node that crashed has got to, so that it need not take a copy of all the data."""
    words = node.installation.server_command(f"--datadir={node.inner_data}", "--wsrep-recover")
    ended = subprocess.run(  # noqa: S603 - our own words
        node.inside(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RECOVER_SECONDS,
        check=False,
    )
    found = _POSITION.findall(ended.stdout)
    return (f"--wsrep-start-position={found[-1]}",) if found else ()
