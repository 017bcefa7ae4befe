"""What docs/operations.md says to type is typed here."""

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, create_engine, text

from app.db import Database
from app.errors import AppError
from app.migrations import migrate
from app.settings import Settings, load_settings
from tests.programs import DUMP, program
from tests.servers import Server, fresh_database
from tests.services import PATIENT, ROOT_KEY, running_service
from tests.use_cases import LIMIT, register, revoke

RUNBOOK = (Path(__file__).parent.parent.parent / "docs" / "operations.md").read_text()


def command(program_name: str) -> list[str]:
    """The words of the runbook's first command that calls this program, without where its output goes."""
    (line, *_) = re.findall(rf"^\$ ({program_name} .*?)(?: [<>] .*)?$", RUNBOOK, re.MULTILINE)
    return shlex.split(line)


def cupo(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"CUPO_DATABASE_URL": url, "CUPO_DEFAULT_DEVICE_LIMIT": str(LIMIT)}
    return subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", "app", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def account_file(folder: Path, server: Server) -> Path:
    file = folder / "account.cnf"
    login = f"user={server.admin_user}\npassword={server.admin_password}"
    file.write_text(f"[client]\nhost={server.host}\nport={server.port}\n{login}\n")
    file.chmod(0o600)
    return file


@contextmanager
def changing_all_the_time(settings: Settings) -> Iterator[threading.Event]:
    """Devices come and go. The event is set once there have been some."""
    stop, some = threading.Event(), threading.Event()

    def live() -> None:
        db = Database(settings)
        for number in range(1_000_000):
            if stop.is_set():
                break
            with suppress(AppError):
                db.transact(register, number % 7 + 1, f"device-{number % 3}")
            with suppress(AppError):
                db.transact(revoke, number % 5 + 1, f"device-{number % 2}")
            if number == 50:
                some.set()
        db.close()

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield some
    finally:
        stop.set()
        thread.join()


def test_a_dump_of_the_running_service_restores_to_a_database_that_the_audit_finds_sound(
    server: Server, folder: Path
) -> None:
    if server.kind != "mariadb":
        pytest.skip("the commands are MariaDB's")
    dump, client = command("mariadb-dump"), command("mariadb")
    dump[0], client[0] = program(DUMP), program(("mariadb",))
    with fresh_database(server, "cupo_test_kept") as url, fresh_database(server, "cupo_test_restored") as new:
        account = f"--defaults-extra-file={account_file(folder, server)}"
        settings = load_settings(database_url=url, root_key=ROOT_KEY)
        migrate(settings)
        with changing_all_the_time(settings) as some:
            assert some.wait(60)
            words = [dump[0], account, *dump[2:-1], "cupo_test_kept"]
            kept = subprocess.run(words, capture_output=True, check=True)  # noqa: S603 - the runbook's
        subprocess.run([client[0], account, "cupo_test_restored"], input=kept.stdout, check=True)  # noqa: S603 - likewise
        for arguments in (["migrate"], ["doctor"], ["audit"]):
            ended = cupo(new, *arguments)
            assert ended.returncode == 0, ended.stdout + ended.stderr
        engine: Engine = create_engine(new)
        with engine.connect() as connection:
            assert connection.execute(text("SELECT COUNT(*) FROM events")).scalar_one() > 50
            connection.execute(text("DELETE FROM events WHERE type = 'device.registered'"))
            connection.commit()
        engine.dispose()
        assert cupo(new, "audit").returncode == 1


def test_the_runbook_s_dump_names_a_snapshot_and_no_password() -> None:
    words = command("mariadb-dump")
    assert "--single-transaction" in words
    assert words[1] == "--defaults-extra-file=backup.cnf"
    assert not re.search(r"\s(--password|-p\S*)\s", RUNBOOK)


@pytest.mark.locking
def test_the_runbook_s_sql_is_understood(server: Server) -> None:
    blocks = re.findall(r"^```sql\n(.*?)```", RUNBOOK, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`((?:SELECT|SHOW) [^`…]+)`", RUNBOOK)
    assert (len(blocks), len(inline)) == (1, 2)
    with server.admin_connection() as admin:
        for statement in (*blocks, *inline):
            admin.exec_driver_sql(statement.strip().rstrip(";").replace("%", "%%")).all()


def test_a_replica_opens_as_many_connections_as_the_runbook_counts(server: Server, folder: Path) -> None:
    with fresh_database(server, "cupo_test_sizing") as url:
        migrate(load_settings(database_url=url, root_key=ROOT_KEY))
        with running_service(url, folder, workers=2, database_pool_size=3, **PATIENT) as service:
            for _ in range(20):
                assert httpx.get(f"{service.url}/readyz").status_code == 200
            query = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'cupo_test_sizing'"
            with server.admin_connection() as admin:
                opened = admin.exec_driver_sql(query).scalar_one()
    assert 2 * 3 < opened <= 2 * (3 + 1)
