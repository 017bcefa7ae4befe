"""`scripts/audit.py` with a stand-in for pip-audit: a finding stops the check, and no network does not."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "audit.py"
PATIENCE_SECONDS = 30
GOOD = {"name": "good", "version": "1.0", "vulns": []}
BAD = {"name": "bad", "version": "2.0", "vulns": [{"id": "PYSEC-2026-1"}, {"id": "PYSEC-2026-2"}]}
UNKNOWN = {"name": "good", "skip_reason": "not found"}


def run(folder: Path, stand_in: str) -> subprocess.CompletedProcess[str]:
    (folder / "pip_audit.py").write_text(stand_in)
    requirements = folder / "requirements.txt"
    requirements.write_text("good==1.0 \\\n    --hash=sha256:00\nbad==2.0 \\\n    --hash=sha256:11\n")
    return subprocess.run(  # noqa: S603 - our own script
        [sys.executable, SCRIPT, requirements],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def that_prints(*dependencies: object) -> str:
    return f"print({json.dumps(json.dumps({'dependencies': dependencies}))})"


def test_a_package_with_a_known_vulnerability_stops_the_check_and_is_named(folder: Path) -> None:
    ended = run(folder, that_prints(GOOD, BAD) + "; raise SystemExit(1)")
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == [
        "bad 2.0: PYSEC-2026-1, PYSEC-2026-2",
        "1 of 2 packages have known vulnerabilities",
    ]


def test_packages_without_one_pass(folder: Path) -> None:
    ended = run(folder, that_prints(GOOD))
    assert (ended.returncode, ended.stdout) == (0, "0 of 1 packages have known vulnerabilities\n")


@pytest.mark.parametrize(
    "stand_in",
    [
        "raise SystemExit('no route to host')",
        that_prints(UNKNOWN),
        "import time; time.sleep(60)",
    ],
    ids=["no network", "a database without our packages", "a network that swallows packets"],
)
def test_a_database_that_cannot_be_asked_stops_nothing_and_is_told(folder: Path, stand_in: str) -> None:
    began = time.monotonic()
    ended = run(folder, stand_in)
    assert ended.returncode == 0
    assert ended.stdout == "not looked up: no database of vulnerabilities can be reached\n"
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
