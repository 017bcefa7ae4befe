"""The OpenAPI document in the hands of a linter and of client generators, and a call by each client."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.tools import run
from tests.services import ROOT_KEY, Service

HERE = Path(__file__).parent
# What register.py and register.ts print beside the device's id.
REGISTERED = {"status": 201, "name": "Ana 📱", "used": 1}

# Getting the tools takes most of it.
pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def typescript_folder(document: Path, node_tools: Path, folder: Path) -> Path:
    """With the generated client, and the packages that it imports."""
    (folder / "node_modules").symlink_to(node_tools.parent)
    (folder / "package.json").write_text('{"type": "module"}')
    ran = run(node_tools, "openapi-typescript", document, "-o", "cupo.ts", folder=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def compile_strictly(source: Path, node_tools: Path) -> str:
    """What the compiler complains of; empty where it made JavaScript."""
    options = (
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--lib",
        "es2022,dom",
        "--module",
        "nodenext",
    )
    ran = run(node_tools, "tsc", *options, source, folder=source.parent)
    assert (ran.returncode == 0) == (not ran.stdout), ran.stderr
    return ran.stdout


def test_redocly_finds_nothing_in_the_document(document: Path, node_tools: Path, folder: Path) -> None:
    options = ("--extends", "recommended", "--format", "json")
    ran = run(node_tools, "redocly", "lint", *options, document, folder=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout)
    assert (found["totals"], found["problems"]) == ({"errors": 0, "warnings": 0, "ignored": 0}, [])


def test_a_device_is_registered_by_a_generated_python_client(
    document: Path, python_tools: Path, folder: Path, service: Service, new_user: Callable[[], int]
) -> None:
    options = ("--path", document, "--output-path", "cupo_client", "--meta", "none", "--fail-on-warning")
    ran = run(python_tools, "openapi-python-client", "generate", *options, folder=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shutil.copy(HERE / "register.py", folder)
    ran = run(python_tools, "python", "register.py", service.url, ROOT_KEY, str(new_user()), folder=folder)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == REGISTERED | {"device_id": "from-python"}


def test_a_device_is_registered_by_a_generated_typescript_client(
    typescript_folder: Path, node_tools: Path, service: Service, new_user: Callable[[], int]
) -> None:
    source = Path(shutil.copy(HERE / "register.ts", typescript_folder))
    assert compile_strictly(source, node_tools) == ""
    call = ("register.js", service.url, ROOT_KEY, str(new_user()))
    ran = run(node_tools, "node", *call, folder=typescript_folder)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == REGISTERED | {"device_id": "from-typescript"}


def test_a_field_that_no_device_has_does_not_compile(typescript_folder: Path, node_tools: Path) -> None:
    """The types hold what the document says, and the compiler is strict."""
    source = typescript_folder / "wrong.ts"
    source.write_text((HERE / "register.ts").read_text().replace("name:", "nmae:", 1))
    assert "'nmae' does not exist" in compile_strictly(source, node_tools)
