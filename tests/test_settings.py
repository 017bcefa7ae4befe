"""The settings: told in the README, refused where they cannot be meant, silent about secrets."""

import os
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any, get_args

import annotated_types
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner
from uvicorn.config import STARTUP_FAILURE

from app.cli import cli
from app.embedded import resolve_root_key
from app.settings import BadSettings, Settings, load_settings
from loadtest.ports import free_port

README = Path(__file__).parent.parent / "README.md"
SECRET = "a-secret-that-nobody-may-see"
PATIENCE_SECONDS = 30


def settings_table() -> str:
    rows = ["| setting | default | values | what it is |", "| --- | --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        rows.append(f"| `CUPO_{name.upper()}` | {_shown(default)} | {_values(field)} | {field.description} |")
    return "\n".join(rows)


def _shown(default: Any) -> str:
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return f"`{default}`".lower()
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _values(field: Any) -> str:
    if field.annotation is bool:
        return "`true`, `false`"
    choices = get_args(field.annotation)
    if bool in (field.annotation, *choices):
        return "`true`, `false`"
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(f"`{choice}`" for choice in choices)
    lowest = highest = ""
    for bound in field.metadata:
        match bound:
            case annotated_types.Ge(ge=value):
                lowest = f"{value}"
            case annotated_types.Gt(gt=value):
                lowest = f"above {value}"
            case annotated_types.Le(le=value):
                highest = f"{value}"
    return f"{lowest} … {highest}" if highest else "text"


def test_the_readme_has_every_setting_with_its_default_and_what_it_is() -> None:
    section = re.search(r"^## Settings\n(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    table = "\n".join(line for line in section[1].splitlines() if line.startswith("|"))
    assert table == settings_table()


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_a_setting_comes_from_the_environment_and_an_override_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPO_PORT", "8001")
    monkeypatch.setenv("cupo_workers", "3")
    monkeypatch.setenv("CUPO_HOST", "")
    settings = load_settings()
    assert (settings.port, settings.workers, settings.host) == (8001, 3, "127.0.0.1")
    assert load_settings(port=9000).port == 9000


IMPOSSIBLE = [
    ("CUPO_PROT", "8000", "is not a setting"),
    ("cupo_prot", "8000", "is not a setting"),
    ("CUPO_", "1", "is not a setting"),
    ("CUPO_PORT", "eighty", "integer"),
    ("CUPO_PORT", "0", "greater"),
    ("CUPO_PORT", "65536", "less"),
    ("CUPO_WORKERS", "0", "greater"),
    ("CUPO_WORKERS", "1.5", "integer"),
    ("CUPO_DEFAULT_DEVICE_LIMIT", "-1", "greater"),
    ("CUPO_DEFAULT_DEVICE_LIMIT", "10001", "less"),
    ("CUPO_DATABASE_POOL_SIZE", "0", "greater"),
    ("CUPO_DATABASE_POOL_WAIT_SECONDS", "0", "greater"),
    ("CUPO_DATABASE_POOL_WAIT_SECONDS", "nan", ""),
    ("CUPO_LOCK_BUDGET_SECONDS", "inf", ""),
    ("CUPO_LOCK_BUDGET_SECONDS", "1.9", "greater"),
    ("CUPO_CONTENTION_RETRIES", "-1", "greater"),
    ("CUPO_MULTI_WRITER", "yes", "auto"),
    ("CUPO_MAX_CONNECTIONS", "0", "greater"),
    ("CUPO_HEAD_TIMEOUT_SECONDS", "0", "greater"),
    ("CUPO_BODY_TIMEOUT_SECONDS", "inf", "less"),
    ("CUPO_TRUSTED_PROXIES", "proxy.example", "addresses or networks"),
    ("CUPO_TRUSTED_PROXIES", "10.0.0.1/8", "addresses or networks"),
    ("CUPO_TRUSTED_PROXIES", "10.0.0.1,", "addresses or networks"),
    ("CUPO_TRUSTED_PROXIES", "*", "addresses or networks"),
    ("CUPO_CORS_ORIGINS", "app.example", "https://app.example"),
    ("CUPO_CORS_ORIGINS", "https://app.example/", "https://app.example"),
    ("CUPO_CORS_ORIGINS", "https://APP.example", "https://app.example"),
    ("CUPO_CORS_ORIGINS", "https://app.example,*", "https://app.example"),
    ("CUPO_CORS_ORIGINS", "null", "https://app.example"),
    ("CUPO_ROOT_KEY", "short", "16 to 256"),
    ("CUPO_ROOT_KEY", "x" * 257, "16 to 256"),
    ("CUPO_ROOT_KEY", "schlüssel-schlüssel", "ASCII"),
    ("CUPO_ROOT_KEY", SECRET + "\n", "space"),
    ("CUPO_ROOT_KEY", " " + SECRET, "space"),
    ("CUPO_DATABASE_URL", f"postgresql://u:{SECRET}@h/d", "postgresql"),
    ("CUPO_DATABASE_URL", f"mysql://u:{SECRET}@h/d", "mysql+pymysql"),
    ("CUPO_DATABASE_URL", f"mysql+pymysql://u:{SECRET}@h:port/d", "is not a database URL"),
    ("CUPO_DATABASE_URL", f"mysql+pymysql://u:{SECRET}@h", "names no database"),
    ("CUPO_DATABASE_URL", f"mysql+pymysql://u:{SECRET}@h:3306/d?foo=bar", "a parameter other than"),
    ("CUPO_DATABASE_URL", f"mysql+pymysql://u:p@h/d?{SECRET}=1", "a parameter other than"),
    ("CUPO_DATABASE_URL", "mysql+pymysql://u:p@h/d?charset=latin1", "charset=utf8mb4"),
    ("CUPO_DATABASE_URL", "mysql+pymysql://u:p@h/d?charset=utf8mb4&charset=utf8mb4", "charset=utf8mb4"),
    ("CUPO_DATABASE_URL", "mysql+pymysql://u:p@h/d?ssl_disabled=false", "ssl_disabled=true"),
    ("CUPO_DATABASE_URL", "mysql+pymysql://u:p@h/d?unix_socket=mysqld.sock", "unix_socket=/path"),
    ("CUPO_DATABASE_URL", "mysql+pymysql://u:p@h/d?connect_timeout=1", "a parameter other than"),
    ("CUPO_MIGRATION_DATABASE_URL", "mysql+pymysql://u:p@h/d?foo=bar", "a parameter other than"),
    ("CUPO_DATABASE_URL", SECRET, "is not a database URL"),
    ("CUPO_DATABASE_URL", "sqlite://", "must name a file"),
    ("CUPO_DATABASE_URL", "sqlite:///:memory:", "must name a file"),
    ("CUPO_DATABASE_URL", "sqlite:///file:x?mode=memory&uri=true", "must name a file"),
]


@pytest.mark.parametrize(("name", "value", "says"), IMPOSSIBLE)
def test_what_cannot_be_meant_is_refused_in_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings) as refused:
        load_settings()
    line = str(refused.value)
    assert line.startswith(f"{name}: ")
    assert "\n" not in line
    assert says in line
    assert SECRET not in line


@pytest.mark.parametrize(
    "parameters", ["charset=utf8mb4", "unix_socket=/run/mysqld.sock", "ssl_disabled=true&charset=utf8mb4"]
)
def test_the_database_s_url_may_have_what_a_connection_is_made_by(parameters: str) -> None:
    url = f"mysql+pymysql://u:p@h/d?{parameters}"
    assert load_settings(database_url=url, migration_database_url=url).url.query


def test_each_mistake_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPO_PORT", "0")
    monkeypatch.setenv("CUPO_WORKERS", "0")
    with pytest.raises(BadSettings) as refused:
        load_settings()
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "CUPO_PORT",
        "CUPO_WORKERS",
    ]


def test_no_secret_shows_when_settings_are_printed() -> None:
    settings = load_settings(root_key=SECRET, database_url=f"mysql+pymysql://u:{SECRET}@h/d")
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json() + str(settings.url)


def run(folder: Path, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUPO_")}
    return subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment | settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


SERVE = ("app", "serve")
UVICORN = ("uvicorn", "app.main:app", "--port", str(free_port()))


# Where uvicorn serves with several workers, its own status says that another would not start either.
SERVING = [(SERVE, 1), (UVICORN, STARTUP_FAILURE)]


@pytest.mark.parametrize(("command", "status"), SERVING)
def test_a_bad_setting_stops_the_service_with_one_line(
    folder: Path, command: tuple[str, ...], status: int
) -> None:
    ended = run(folder, *command, CUPO_DATABASE_URL=f"mysql://u:{SECRET}@h/d")
    assert ended.returncode == status
    assert re.fullmatch(r"cupo: CUPO_DATABASE_URL: [^\n]+\n", ended.stderr)
    assert SECRET not in ended.stdout + ended.stderr
    assert list(folder.iterdir()) == [], "nothing was made"


def test_there_is_no_root_key_but_the_one_that_is_set_or_the_embedded_default_s(
    folder: Path, database_url: str
) -> None:
    embedded = f"sqlite:///{folder}/cupo.db"
    for url, root_key, found in (
        (database_url, None, None),
        (database_url, "off", None),
        (database_url, SECRET, SECRET),
        (embedded, "off", None),
        (embedded, SECRET, SECRET),
    ):
        assert resolve_root_key(load_settings(database_url=url, root_key=root_key)) == found
    assert list(folder.iterdir()) == []
    made = resolve_root_key(load_settings(database_url=embedded))
    assert made == (folder / "root_key").read_text().strip()


@pytest.mark.parametrize("command", ["serve", "migrate", "doctor", "openapi"])
def test_an_unknown_setting_stops_every_command_with_one_line(folder: Path, command: str) -> None:
    with chdir(folder):
        ended = CliRunner().invoke(cli, [command], env={"CUPO_PROT": "8000"})
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == "cupo: CUPO_PROT: is not a setting of Cupo\n"
    assert list(folder.iterdir()) == []


def test_migrate_and_doctor_need_no_root_key(folder: Path, database_url: str) -> None:
    for command in ("migrate", "doctor"):
        with chdir(folder):
            assert CliRunner().invoke(cli, [command], env={"CUPO_DATABASE_URL": database_url}).exit_code == 0


def test_the_settings_of_the_tests_themselves_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPO_TEST_DATABASE_URL", "mysql://elsewhere/")
    assert load_settings().is_embedded
