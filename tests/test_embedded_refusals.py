"""What keeps the embedded default from starting is told in one line, and a bad key is never taken for one."""

import os
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app import main
from app.cli import cli
from app.embedded import resolve_root_key
from app.settings import BadSettings, load_settings
from tests.ports import free_port

PATIENCE_SECONDS = 40
NOBODY = 65534


def cupo(folder: Path, *arguments: str) -> Result:
    with chdir(folder):
        return CliRunner().invoke(cli, arguments)


def serve(folder: Path) -> Result:
    return cupo(folder, "serve", "--port", str(free_port()))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_database_file_that_is_none_is_told_in_one_line(folder: Path) -> None:
    (folder / "var").mkdir()
    (folder / "var" / "cupo.db").write_bytes(b"This is not a database, whatever it may be. " * 100)
    line = "cupo: the database refused: file is not a database"
    for refused in (serve(folder), cupo(folder, "migrate")):
        assert (refused.exit_code, refused.stdout, refused.stderr) == (1, "", f"{line}\n")
    with chdir(folder), pytest.raises(SystemExit, match=f"^{line}$"):
        _ = main.app  # as `uvicorn app.main:app` asks for it
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


def test_a_folder_that_may_not_be_written_is_told_in_one_line(open_folder: Path) -> None:
    for made in ((), ("var",)):
        for name in made:
            (open_folder / name).mkdir(mode=0o555)
        with as_nobody():
            refused = serve(open_folder)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert re.fullmatch(r"cupo: [^\n]+ var[^\n]+ Permission denied\n", refused.stderr)


def test_a_database_that_may_not_be_written_is_told_in_one_line(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPO_ROOT_KEY", "a key of my own choice")
    assert cupo(open_folder, "migrate").exit_code == 0
    (open_folder / "var").chmod(0o555)
    (open_folder / "var" / "cupo.db").chmod(0o444)
    with as_nobody():
        refused = serve(open_folder)
    (open_folder / "var").chmod(0o755)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert re.fullmatch(r"cupo: the database refused: [^\n]+\n", refused.stderr)


@pytest.mark.parametrize("content", [b"", b"\n", b"too short\n", b"\xff" * 40, b"two\nlines of a key\n"])
def test_a_key_file_without_a_key_is_refused_and_named(folder: Path, content: bytes) -> None:
    (folder / "root_key").write_bytes(content)
    with pytest.raises(BadSettings, match="root_key holds no key"):
        resolve_root_key(load_settings(database_url=f"sqlite:///{folder}/cupo.db"))


def test_many_that_start_at_once_agree_on_one_key(folder: Path) -> None:
    settings = load_settings(database_url=f"sqlite:///{folder}/var/cupo.db")
    barrier = threading.Barrier(20)

    def start(_: int) -> str:
        barrier.wait(PATIENCE_SECONDS)
        return resolve_root_key(settings)

    with ThreadPoolExecutor(20) as starters:
        keys = set(starters.map(start, range(20)))
    assert len(keys) == 1
    assert [path.name for path in (folder / "var").iterdir()] == ["root_key"]
