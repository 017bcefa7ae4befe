"""The proxy of docs/haproxy-database.cfg before two servers, one of which has all connections."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.db import Database
from app.settings import load_settings
from loadtest.ports import LOOPBACK, free_port
from tests.processes import started
from tests.programs import HAPROXY, program
from tests.routing.conftest import Load, Pair, port, set_read_only, url_at, wait_until
from tests.services import ROOT_KEY

pytestmark = pytest.mark.locking
CONFIGURATION = Path(__file__).parent.parent.parent / "docs" / "haproxy-database.cfg"


@pytest.fixture(autouse=True)
def _mariadb(pair: Pair) -> Iterator[None]:
    if pair.servers[0].kind != "mariadb":
        pytest.skip("the configuration is for MariaDB: MySQL lets an account without a password in otherwise")
    (account,) = re.findall(r"^# +(CREATE USER .*);$", CONFIGURATION.read_text(), re.MULTILINE)
    for server in pair.servers:
        with server.admin_connection() as admin:
            admin.exec_driver_sql(account.replace("10.0.0.9", LOOPBACK))
    yield
    for server in pair.servers:
        with server.admin_connection() as admin:
            admin.exec_driver_sql(f"DROP USER 'haproxy'@'{LOOPBACK}'")


@contextmanager
def balanced(pair: Pair, folder: Path) -> Iterator[Database]:
    """A database behind HAProxy, with our configuration, before the two servers."""
    own = free_port()
    text = CONFIGURATION.read_text().replace("bind :3306", f"bind {LOOPBACK}:{own}")
    for number, host in enumerate((*pair.hosts, f"{LOOPBACK}:{free_port()}"), 1):
        text = text.replace(f"10.0.0.{number}:3306", host)
    file = folder / "haproxy.cfg"
    file.write_text(text)
    checked = subprocess.run([program(HAPROXY), "-c", "-f", file], capture_output=True, check=False)  # noqa: S603 - Debian's
    assert checked.returncode == 0, checked.stderr
    assert b"WARNING" not in checked.stderr
    log = folder / "haproxy.log"
    with (
        log.open("wb") as output,
        started([program(HAPROXY), "-db", "-f", file], stdout=output, stderr=output),
    ):
        db = Database(load_settings(database_url=url_at(pair, f"{LOOPBACK}:{own}"), root_key=ROOT_KEY))
        try:
            yield db
        finally:
            db.close()


def test_a_node_that_dies_or_may_not_be_written_hands_over_to_one_other_and_no_call_fails(
    pair: Pair, folder: Path
) -> None:
    first, second = pair.servers

    def all_go_to(wanted: int) -> bool:
        return {db.transact(port) for _ in range(3)} == {wanted}

    with balanced(pair, folder) as db:
        wait_until(lambda: all_go_to(first.port))
        load = Load(db)
        with load.going_on():
            load.go_on_for(30)
            first.kill()
            try:
                load.go_on_for(100)
                assert all_go_to(second.port)
            finally:
                first.start()
            wait_until(lambda: all_go_to(first.port))
            load.go_on_for(100)
            set_read_only(first, on=True)
            try:
                wait_until(lambda: all_go_to(second.port))
                load.go_on_for(100)
            finally:
                set_read_only(first, on=False)
            wait_until(lambda: all_go_to(first.port))


def test_idle_connections_to_a_node_that_may_not_be_written_are_ended(pair: Pair, folder: Path) -> None:
    """Over them it would be read on, also when it lags behind the node that is written."""
    first, second = pair.servers
    with balanced(pair, folder) as db:
        wait_until(lambda: reads_at(db) == first.port)
        db.open_connections()
        set_read_only(first, on=True)
        try:
            wait_until(lambda: reads_at(db) == second.port)
        finally:
            set_read_only(first, on=False)


def reads_at(db: Database) -> int:
    return db.transact(port, read_only=True)
