"""Schemathesis: all that the OpenAPI document admits, and what it does not, sent to the running service.

Each run sends the same, so that a failure is one of the change at hand. By hand, longer and from elsewhere:

    SCHEMATHESIS_EXAMPLES=1000 SCHEMATHESIS_SEED=$RANDOM scripts/test -m schemathesis
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.main import create_app
from app.settings import load_settings
from tests.api.tools import run
from tests.databases import migrated_database
from tests.servers import Server
from tests.services import ROOT_KEY, Service, running_service

HERE = Path(__file__).parent
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "25")
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
# Getting the tools takes most of it; a longer run has no end that could be known.
PATIENCE_SECONDS = 0 if "SCHEMATHESIS_EXAMPLES" in os.environ else 900

pytestmark = [pytest.mark.schemathesis, pytest.mark.slow, pytest.mark.timeout(PATIENCE_SECONDS)]


@pytest.fixture(scope="module")
def lonely_service(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """With a database of its own: any user may be called for, and erased."""
    folder = tmp_path_factory.mktemp("service")
    with (
        migrated_database(server, "cupo_test_schemathesis") as url,
        running_service(url, folder, default_device_limit=100) as running,
    ):
        yield running


def schemathesis(
    document: str | Path, service: Service, folder: Path, tools: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    return run(
        tools,
        "schemathesis",
        *("--no-color", "--config-file", HERE / "schemathesis.toml", "run", document),
        *("--url", service.url, "--header", f"Authorization: Bearer {ROOT_KEY}", "--seed", SEED, *options),
        folder=folder,
        PYTHONPATH=str(HERE),
    )


def test_whatever_is_sent_the_service_answers_as_its_document_says(
    lonely_service: Service, python_tools: Path, folder: Path
) -> None:
    address = f"{lonely_service.url}/openapi.json"
    options = ("--max-examples", EXAMPLES, "--continue-on-failure")
    ran = schemathesis(address, lonely_service, folder, python_tools, *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = dict(re.findall(r"^ *(Selected|Tested): *(\S+)$", ran.stdout, re.MULTILINE))
    operations = sum(map(len, create_app(load_settings(root_key=ROOT_KEY)).openapi()["paths"].values()))
    assert said == {"Selected": f"{operations}/{operations}", "Tested": f"{operations}"}
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}\n" in ran.stdout
    assert "Traceback" not in lonely_service.logged()


def test_an_answer_that_the_document_leaves_out_is_noticed(
    lonely_service: Service, document: Path, python_tools: Path, folder: Path
) -> None:
    """The check of this file can fail."""
    wrong = json.loads(document.read_text())
    del wrong["paths"]["/v1/users/{user_id}/devices/{device_id}"]["get"]["responses"]["404"]
    document.write_text(json.dumps(wrong))
    options = ("--include-operation-id", "getDevice", "--phases", "examples")
    ran = schemathesis(document, lonely_service, folder, python_tools, *options)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "Undocumented status code" in ran.stdout
