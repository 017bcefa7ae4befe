"""The server that all contestants share, and their databases on it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bench.errors import BadUse
from bench.processes import filesystem_of
from loadtest.installations import ServerError
from tests.servers import fresh_database, private_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.plan import Plan
    from bench.scenarios import Database
    from tests.servers import Server

SCHEMA = Path(__file__).parent / "peers" / "schema.sql"
PEER = "peer"  # and the account `app` with the password `app`: one of the peers has them built in
NAMES: Mapping[Database, str] = {"own": "cupo_test_bench", "filled": "cupo_test_filled", "peer": PEER}
# What registrations write. The key that they are made with is in another table, and stays.
WRITTEN: Mapping[Database, Sequence[str]] = {
    "own": ("devices", "device_registration_locks", "events"),
    "filled": (),
    "peer": ("devices", "device_registration_locks"),
}
# The server's own defaults, where the tests have smaller ones to start sooner.
DEFAULT_LOGS = {"mariadb": "--innodb-log-file-size=96M", "mysql": "--innodb-redo-log-capacity=100M"}
IN_MEMORY = {"tmpfs", "ramfs"}


@contextmanager
def shared_server(plan: Plan) -> Iterator[Server]:
    """A private server with its data on a disk: where a commit costs nothing, nothing is measured."""
    where = Path(tempfile.gettempdir())
    if plan.server == "mariadb" and filesystem_of(where) in IN_MEMORY:
        raise BadUse(f"{where} is in memory: name a folder on a disk by TMPDIR")
    try:
        with private_server(
            plan.server,
            f"--innodb-buffer-pool-size={plan.buffer_pool}",
            DEFAULT_LOGS[plan.server],
        ) as server:
            yield server
    except ServerError as error:
        raise BadUse(str(error)) from None


@contextmanager
def databases(server: Server, wanted: set[Database]) -> Iterator[None]:
    """Empty ones: Cupo's at head, with its documented accounts; the peers' with their tables."""
    with ExitStack() as made:
        for name in ("own", "filled"):
            if name in wanted:
                url = made.enter_context(fresh_database(server, NAMES[name]))
                run_cupo(server, name, "migrate", CUPO_MIGRATION_DATABASE_URL=url)
        if "peer" in wanted:
            _make_peers_database(server)
        yield


def run_cupo(server: Server, name: Database, *words: str, **variables: str) -> str:
    """What the command prints. Raises BadUse where it fails."""
    ended = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "app", *words],
        env=cupo_environment(server, name) | variables,
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise BadUse(f"cupo {words[0]} failed: {ended.stderr.strip()}")
    return ended.stdout.strip()


def cupo_environment(server: Server, name: Database) -> dict[str, str]:
    """Defaults, but for the database. The peers do not encrypt what goes to it, and nor does Cupo here."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    url = sa.make_url(server.url(NAMES[name])).update_query_dict({"ssl_disabled": "true"})
    return others | {
        "CUPO_DATABASE_URL": url.render_as_string(hide_password=False),
        "CUPO_ROOT_KEY": "off",
    }


def make_key(server: Server, name: Database) -> str:
    """An API key that may register devices and nothing else: its token."""
    return run_cupo(server, name, "keys", "create", "--name", "bench", "--scope", "devices:write")


def empty(server: Server, name: Database) -> None:
    with server.admin_connection(NAMES[name]) as admin:
        for table in WRITTEN[name]:
            admin.exec_driver_sql(f"TRUNCATE TABLE {table}")


def count_devices(server: Server, name: Database) -> int:
    with server.admin_connection(NAMES[name]) as admin:
        return int(admin.exec_driver_sql("SELECT COUNT(*) FROM devices").scalar_one())


def _make_peers_database(server: Server) -> None:
    schema = re.sub(r"^--.*$", "", SCHEMA.read_text(encoding="utf-8"), flags=re.MULTILINE)
    with server.admin_connection() as admin:
        admin.exec_driver_sql(f"CREATE DATABASE {PEER} CHARACTER SET utf8mb4")
        admin.exec_driver_sql("CREATE USER 'app'@'%%' IDENTIFIED BY 'app'")
        admin.exec_driver_sql(f"GRANT ALL ON {PEER}.* TO 'app'@'%%'")
        admin.exec_driver_sql(f"USE {PEER}")
        for statement in filter(None, map(str.strip, schema.split(";"))):
            admin.exec_driver_sql(statement)
