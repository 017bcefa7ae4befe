import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from loadtest.installations import Kind, ServerError, find_installation, scratch_folder
from tests.servers import (
    POLL_SECONDS,
    Server,
    counted_deadlocks,
    fresh_database,
    private_server,
    server_under_test,
)

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 20

pytestmark = pytest.mark.skipif(
    "CUPO_TEST_DATABASE_URL" in os.environ, reason="a server is given, so none is started here"
)


@pytest.fixture(scope="module")
def kind(pytestconfig: pytest.Config) -> Kind:
    return cast("Kind", pytestconfig.getoption("--server", default="mariadb"))


@pytest.fixture(scope="module")
def own_server(kind: Kind) -> Iterator[Server]:
    """Not the one of the other tests: it is stopped, killed and paused here."""
    with private_server(kind) as server:
        yield server


def test_server_is_of_the_kind_that_was_asked_for(own_server: Server, kind: Kind) -> None:
    with own_server.admin_connection() as admin:
        version = admin.exec_driver_sql("SELECT VERSION()").scalar_one()
    assert own_server.version == version
    assert ("MariaDB" in own_server.version) == (kind == "mariadb")


def test_server_is_durable_and_takes_500_connections_on_the_loopback_address(own_server: Server) -> None:
    with own_server.admin_connection() as admin:
        row = admin.exec_driver_sql(
            "SELECT @@innodb_flush_log_at_trx_commit, @@max_connections, @@bind_address"
        ).one()
    assert tuple(row) == (1, 500, "127.0.0.1")


def test_nobody_gets_in_without_a_password(own_server: Server) -> None:
    for user in ("", "root", "mysql", own_server.admin_user, own_server.migration_user, own_server.app_user):
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            pymysql.connect(host=own_server.host, port=own_server.port, user=user, password="")


def test_accounts_have_their_database_and_no_other(own_server: Server) -> None:
    with (
        fresh_database(own_server, "cupo_test_own") as url,
        sa.create_engine(url, poolclass=sa.NullPool).connect() as migrations,
        sa.create_engine(own_server.url("cupo_test_own"), poolclass=sa.NullPool).connect() as app,
    ):
        migrations.exec_driver_sql("CREATE TABLE t (id INT PRIMARY KEY)")
        app.exec_driver_sql("INSERT INTO t VALUES (1)")
        assert migrations.exec_driver_sql("SELECT CURRENT_USER()").scalar_one() == "cupo_migrations@%"
        assert app.exec_driver_sql("SELECT CURRENT_USER()").scalar_one() == "cupo_app@%"
        # The second matches cupo_test_own where _ stands for any character.
        for elsewhere in ("mysql", "cupo_testXown"):
            with pytest.raises(OperationalError, match="denied"):
                migrations.exec_driver_sql(f"CREATE TABLE {elsewhere}.t (id INT PRIMARY KEY)")
        for statement in ("CREATE TABLE u (id INT)", "ALTER TABLE t ADD n INT", "DROP TABLE t"):
            with pytest.raises(OperationalError, match="denied"):
                app.exec_driver_sql(statement)


def test_app_account_logs_in_by_the_default_way_of_its_server(own_server: Server, kind: Kind) -> None:
    with own_server.admin_connection() as admin:
        plugin = admin.exec_driver_sql("SELECT plugin FROM mysql.user WHERE user = 'cupo_app'").scalar_one()
    assert plugin == {"mariadb": "mysql_native_password", "mysql": "caching_sha2_password"}[kind]


def test_fresh_database_is_empty_each_time_and_holds_any_text(own_server: Server) -> None:
    for _ in range(2):
        with (
            fresh_database(own_server, "cupo_test_again") as url,
            sa.create_engine(url, poolclass=sa.NullPool).begin() as app,
        ):
            app.exec_driver_sql("CREATE TABLE t (word VARCHAR(9))")
            app.exec_driver_sql("INSERT INTO t VALUES ('📱漢')")
            assert app.exec_driver_sql("SELECT word FROM t").scalar_one() == "📱漢"


def test_a_server_that_starts_leaves_the_temporary_tables_of_others_alone(
    own_server: Server, kind: Kind
) -> None:
    if kind == "mysql":
        pytest.skip("keeps them in its data folder anyhow")
    with fresh_database(own_server, "cupo_test_own"), own_server.admin_connection("cupo_test_own") as admin:
        admin.exec_driver_sql("CREATE TEMPORARY TABLE t ENGINE = Aria SELECT 1 AS n")
        with private_server(kind):
            # Twice in one statement, so that its file is opened again.
            assert admin.exec_driver_sql("SELECT one.n FROM t AS one JOIN t AS other").all() == [(1,)]


def test_fresh_database_refuses_a_name_that_is_not_for_tests(own_server: Server) -> None:
    with pytest.raises(ValueError, match="cupo_test"), fresh_database(own_server, "production"):
        pass


def test_committed_rows_survive_stop_and_kill_on_the_same_port(own_server: Server) -> None:
    with fresh_database(own_server, "cupo_test_kept") as url:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as app:
            app.exec_driver_sql("CREATE TABLE t (id INT PRIMARY KEY)")
        for number, end in enumerate((own_server.stop, own_server.kill)):
            with engine.begin() as app:
                app.exec_driver_sql("INSERT INTO t VALUES (%s)", (number,))
            end()
            with pytest.raises(OperationalError):
                engine.connect()
            own_server.start()
        with engine.connect() as app:
            assert app.exec_driver_sql("SELECT id FROM t ORDER BY id").scalars().all() == [0, 1]


def test_paused_server_answers_nothing_until_it_is_resumed(own_server: Server) -> None:
    impatient = sa.create_engine(
        own_server.url("", own_server.admin_user),
        poolclass=sa.NullPool,
        connect_args={"connect_timeout": 1, "read_timeout": 0.2},
    )
    own_server.pause()
    try:
        with pytest.raises(OperationalError):
            impatient.connect()
    finally:
        own_server.resume()
    with own_server.admin_connection() as admin:
        assert admin.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_paused_server_can_be_stopped(own_server: Server) -> None:
    own_server.pause()
    own_server.stop()
    own_server.start()


def test_each_deadlock_is_counted(own_server: Server) -> None:
    with fresh_database(own_server, "cupo_test_deadlock") as url:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as app:
            app.exec_driver_sql("CREATE TABLE t (id INT PRIMARY KEY) ENGINE = InnoDB")
            app.exec_driver_sql("INSERT INTO t VALUES (1), (2)")
        before = counted_deadlocks(own_server)
        both_hold_one = threading.Barrier(2, timeout=PATIENCE_SECONDS)
        refused = []

        def lock_crosswise(first: int, second: int) -> None:
            with engine.connect() as app:
                app.exec_driver_sql("SELECT id FROM t WHERE id = %s FOR UPDATE", (first,))
                both_hold_one.wait()
                try:
                    app.exec_driver_sql("SELECT id FROM t WHERE id = %s FOR UPDATE", (second,))
                except OperationalError as error:
                    refused.append(cast("pymysql.err.OperationalError", error.orig).args[0])

        rivals = [threading.Thread(target=lock_crosswise, args=order) for order in ((1, 2), (2, 1))]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
        assert refused == [1213]
        assert counted_deadlocks(own_server) == before + 1


def test_given_server_is_used_and_left_running(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = own_server.url("", own_server.admin_user).replace("mysql+pymysql:", "mysql:")
    monkeypatch.setenv("CUPO_TEST_DATABASE_URL", url)
    with server_under_test("mariadb") as given:
        assert (given.kind, given.version, given.port) == (
            own_server.kind,
            own_server.version,
            own_server.port,
        )
        with (
            fresh_database(given, "cupo_test_given") as database,
            sa.create_engine(database, poolclass=sa.NullPool).connect() as app,
        ):
            assert app.exec_driver_sql("SELECT DATABASE()").scalar_one() == "cupo_test_given"
        with given.admin_connection() as admin:
            assert admin.exec_driver_sql("SHOW DATABASES LIKE 'cupo_test_given'").all() == []
        for end in (given.stop, given.kill, given.pause, given.start):
            with pytest.raises(ServerError, match="not ours"):
                end()
    assert own_server.process
    assert own_server.process.pid


def test_server_is_not_started_from_a_thread_that_may_end_before_it(own_server: Server) -> None:
    process = own_server.process
    assert process
    refused = []

    def start() -> None:
        try:
            process.start()
        except ServerError as error:
            refused.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert refused == ["start a server from the main thread, or it dies with its thread"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_tests_leave_no_server_and_no_folder(kind: Kind, number: signal.Signals) -> None:
    with closing(StandIn(kind)) as tests:
        tests.end_by(number)
        assert not tests.server_answers()
        assert not tests.folder.exists()


def test_killed_tests_leave_no_server_and_their_folder_goes_with_the_next(kind: Kind) -> None:
    with closing(StandIn(kind)) as tests:
        tests.end_by(signal.SIGKILL)
        # The kernel ends the server, but tells nobody when it is done.
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while tests.server_answers() and time.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
        assert not tests.server_answers()
        assert tests.folder.exists()
        with scratch_folder(find_installation(kind)):
            assert not tests.folder.exists()


def test_paused_server_of_killed_tests_is_gone_too(kind: Kind) -> None:
    with closing(StandIn(kind, "server.pause()")) as tests:
        tests.end_by(signal.SIGKILL)
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while tests.server_answers() and time.monotonic() < give_up_at:
            time.sleep(POLL_SECONDS)
        assert not tests.server_answers()


class StandIn:
    """A process in the place of the tests: it has a private server and waits to be ended."""

    def __init__(self, kind: Kind, then: str = "") -> None:
        program = f"""
            import time
            from tests.servers import private_server
            with private_server({kind!r}) as server:
                {then}
                print(server.port, server.process.log.parent, flush=True)
                while True:  # Python acts on a signal between two calls; one that never ends may miss it
                    time.sleep(0.01)
        """
        self._process = subprocess.Popen(  # noqa: S603  the program above
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout
        port, folder = self._process.stdout.readline().split()
        self._port, self.folder = int(port), Path(folder)
        assert self.server_answers()
        assert self.folder.exists()

    def end_by(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(PATIENCE_SECONDS)

    def server_answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
