"""`cupo keys`: makes the first key without any other, and ends any."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import cli
from tests.auth.keys import Key
from tests.problems import problem_of
from tests.services import Service, running_service


def cupo(database_url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["keys", *arguments], env={"CUPO_DATABASE_URL": database_url})


def made(database_url: str, *options: str) -> Key:
    done = cupo(database_url, "create", "--name", "ops", *options)
    assert re.fullmatch(r"cupo_\w+\n", done.stdout), done.stderr
    token = done.stdout.strip()
    assert f"Key {token.split('_')[1]} (ops)" in done.stderr
    assert token not in done.stderr
    return Key(token.split("_")[1], token)


def listed(database_url: str) -> dict[str, Any]:
    done = cupo(database_url, "list", "--json")
    assert done.exit_code == 0, done.stderr
    return {key["id"]: key for key in json.loads(done.stdout)}


@pytest.fixture
def embedded(folder: Path) -> str:
    return f"sqlite:///{folder}/cupo.db"


def test_the_first_key_needs_no_root_key(database_url: str, folder: Path) -> None:
    with running_service(database_url, folder, root_key="off") as service:
        said = service.log.read_text()
        assert "Root key      none: API keys and user tokens alone are let in" in said
        problem_of(httpx.get(f"{service.url}/v1/users/77/devices"), 401, "unauthenticated")
        with Key("", "off").client(service) as client:
            problem_of(client.get("/v1/users/77/devices"), 401, "unauthenticated")
        with made(database_url, "--scope", "devices:read").client(service) as client:
            assert client.get("/v1/users/77/devices").status_code == 200


def test_a_key_that_the_command_revokes_ends(service: Service, database_url: str) -> None:
    key = made(database_url, "--scope", "devices:read")
    revoked = cupo(database_url, "revoke", key.id)
    assert re.fullmatch(
        rf"Key {key.id} \(ops\) was revoked by cli at [-0-9]+ [0-9:]+ UTC\.\n", revoked.stdout
    )
    assert cupo(database_url, "revoke", key.id).stdout == revoked.stdout
    with key.client(service) as client:
        problem_of(client.get("/v1/users/77/devices"), 401, "unauthenticated")


def test_keys_are_made_listed_and_revoked_on_sqlite_too(embedded: str) -> None:
    key = made(embedded, "--scope", "devices:write", "--scope", "devices:read", "--expires-in", "90d")
    other = made(embedded, "--scope", "keys:manage", "--expires-at", "2030-01-01T01:00:00+01:00")
    found = listed(embedded)
    assert list(found) == [other.id, key.id]
    assert found[key.id]["scopes"] == ["devices:read", "devices:write"]
    assert found[key.id]["created_by"] == "cli"
    assert found[key.id]["expires_at"] > found[key.id]["created_at"]
    assert found[other.id]["expires_at"] == "2030-01-01T00:00:00.000000Z"
    assert cupo(embedded, "revoke", key.id).exit_code == 0
    assert listed(embedded)[key.id]["revoked_by"] == "cli"
    table = cupo(embedded, "list")
    for shown in (key.id, other.id, "ops", "devices:write", "2030-01-01"):
        assert shown in table.stdout
    assert key.token.rsplit("_", 1)[1] not in table.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "--name", "", "--scope", "devices:read"), "cupo: --name: must not be empty\n"),
        (("create", "--name", "a", "--scope", "devices:reed"), "cupo: --scope: [^\n]*'keys:manage'\n"),
        (
            ("create", "--name", "a", "--scope", "keys:manage", "--expires-in", "90"),
            "cupo: --expires-in: [^\n]+\n",
        ),
        (
            ("create", "--name", "a", "--scope", "keys:manage", "--expires-in", "1s"),
            "cupo: --expires-in: [^\n]+\n",
        ),
        (
            ("create", "--name", "a", "--scope", "keys:manage", "--expires-at", "2020-01-01T00:00:00Z"),
            "cupo: --expires-at: [^\n]+\n",
        ),
        (
            ("create", "--name", "a", "--scope", "keys:manage", "--expires-at", "2030-01-01T00:00:00"),
            "cupo: --expires-at: [^\n]+\n",
        ),
        (
            ("create", "--name", "a", "--scope", "keys:manage", "--expires-in", "1d", "--expires-at", "x"),
            "cupo: --expires-in and --expires-at [^\n]+\n",
        ),
        (("revoke", "nothing"), "cupo: There is no API key nothing.\n"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(
    embedded: str, arguments: tuple[str, ...], says: str
) -> None:
    ended = cupo(embedded, *arguments)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert re.fullmatch(says, ended.stderr)


def test_a_database_that_is_not_there_is_told() -> None:
    ended = cupo("mysql+pymysql://cupo:a-password@127.0.0.1:1/cupo", "list")
    assert ended.exit_code == 1
    assert ended.stderr == "cupo: The database does not answer as it must. It is safe to repeat this call.\n"
    assert "a-password" not in ended.stdout
