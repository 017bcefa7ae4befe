"""What keeps the embedded default from starting is told in one line, and a bad key is never taken for one."""

import os
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result
from uvicorn.config import STARTUP_FAILURE

from app import main
from app.cli import cli
from app.embedded import resolve_root_key
from app.settings import BadSettings, load_settings
from loadtest.ports import free_port

PATIENCE_SECONDS = 40


def cupo(folder: Path, *arguments: str) -> Result:
    with chdir(folder):
        return CliRunner().invoke(cli, arguments)


def serve(folder: Path) -> Result:
    return cupo(folder, "serve", "--port", str(free_port()))


def serve_without_roots_rights(folder: Path, **settings: str) -> tuple[int, str, str]:
    """Exit status, output and complaints of a `serve` that may not write what its owner may not write."""
    root = os.geteuid() == 0
    give_up = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if root else ()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    ended = subprocess.run(  # noqa: S603 - our own command
        [*give_up, sys.executable, "-m", "app", "serve", "--port", str(free_port())],
        cwd=folder,
        env=environment | settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_a_database_file_that_is_none_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "var").mkdir()
    (folder / "var" / "cupo.db").write_bytes(b"This is not a database, whatever it may be. " * 100)
    line = "cupo: the database refused: file is not a database"
    for refused in (serve(folder), cupo(folder, "migrate")):
        assert (refused.exit_code, refused.stdout, refused.stderr) == (1, "", f"{line}\n")
    with chdir(folder), pytest.raises(SystemExit, match=f"^{STARTUP_FAILURE}$"):
        _ = main.app  # as `uvicorn app.main:app` asks for it
    assert capsys.readouterr().err == f"{line}\n"
    doctor = cupo(folder, "doctor")
    assert doctor.exit_code == 1
    assert "file is not a database" in doctor.stdout


def test_a_port_in_use_is_told_before_an_address_is_printed(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = cupo(folder, "serve", "--port", str(taken.getsockname()[1]))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert re.fullmatch(r"cupo: cannot listen: Address already in use[^\n]*\n", refused.stderr)


def test_a_folder_that_cannot_be_made_is_told_in_one_line(folder: Path) -> None:
    (folder / "var").write_text("a file where the folder should be")
    for refused in (serve(folder), cupo(folder, "migrate")):
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr == "cupo: CUPO_DATABASE_URL: the folder var cannot be made: File exists\n"


def test_a_folder_that_may_not_be_written_is_told_in_one_line(folder: Path) -> None:
    var = folder / "var"
    for sealed in (folder, var):
        sealed.mkdir(exist_ok=True)
        sealed.chmod(0o555)
        status, output, complaints = serve_without_roots_rights(folder)
        sealed.chmod(0o755)
        assert (status, output) == (1, "")
        assert re.fullmatch(r"cupo: [^\n]+ var[^\n]+ Permission denied\n", complaints)


def test_a_database_that_may_not_be_written_is_told_in_one_line(folder: Path) -> None:
    assert cupo(folder, "migrate").exit_code == 0
    (folder / "var" / "cupo.db").chmod(0o444)
    (folder / "var").chmod(0o555)
    status, output, complaints = serve_without_roots_rights(folder, CUPO_ROOT_KEY="a key of my own choice")
    (folder / "var").chmod(0o755)
    assert (status, output) == (1, "")
    assert re.fullmatch(r"cupo: the database refused: [^\n]+\n", complaints)


@pytest.mark.parametrize("content", [b"", b"\n", b"too short\n", b"\xff" * 40, b"two\nlines of a key\n"])
def test_a_key_file_without_a_key_is_refused_and_named(folder: Path, content: bytes) -> None:
    (folder / "root_key").write_bytes(content)
    with pytest.raises(BadSettings, match="root_key holds no key"):
        resolve_root_key(load_settings(database_url=f"sqlite:///{folder}/cupo.db"))


def test_many_that_start_at_once_agree_on_one_key(folder: Path) -> None:
    settings = load_settings(database_url=f"sqlite:///{folder}/var/cupo.db")
    barrier = threading.Barrier(20)

    def start(_: int) -> str | None:
        barrier.wait(PATIENCE_SECONDS)
        return resolve_root_key(settings)

    with ThreadPoolExecutor(20) as starters:
        keys = set(starters.map(start, range(20)))
    assert len(keys) == 1
    assert [path.name for path in (folder / "var").iterdir()] == ["root_key"]
