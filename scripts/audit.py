"""Look the pinned packages up in pip-audit's database of vulnerabilities:

    .venv/bin/python scripts/audit.py requirements.txt …

Exit status 1: one of them is known to have any. Where the database cannot be reached, or knows none of our
packages, the only line says so and the status is 0.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# One package first: without a network, or on one that swallows packets, this is all that is waited for.
PROBE_SECONDS = 5
AUDIT_SECONDS = 180
CONNECT_SECONDS = 3


def audit(requirements: list[str], within_seconds: float) -> list[Any] | None:
    """What is known of each package; None where nothing could be asked."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off"]
    command += ["--format", "json", "--timeout", str(CONNECT_SECONDS)]
    for path in requirements:
        command += ["--requirement", path]
    try:
        ended = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=within_seconds, check=False
        )
        return [one for one in json.loads(ended.stdout)["dependencies"] if "skip_reason" not in one]
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return None


def probe(requirements: str) -> bool:
    first = Path(requirements).read_text().split(maxsplit=1)[0]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{first}\n")
        file.flush()
        return bool(audit([file.name], PROBE_SECONDS))


def main(requirements: list[str]) -> int:
    known = audit(requirements, AUDIT_SECONDS) if probe(requirements[0]) else None
    if not known:
        sys.stdout.write("not looked up: no database of vulnerabilities can be reached\n")
        return 0
    bad = [one for one in known if one["vulns"]]
    for package in bad:
        ids = ", ".join(vulnerability["id"] for vulnerability in package["vulns"])
        sys.stdout.write(f"{package['name']} {package['version']}: {ids}\n")
    sys.stdout.write(f"{len(bad)} of {len(known)} packages have known vulnerabilities\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
