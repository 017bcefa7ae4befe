"""The tools that users have for OpenAPI documents, got by `scripts/api-tools` and run as users run them."""

import os
import subprocess
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
# So that nothing is sent anywhere: Redocly would tell its makers of each run, and look for a newer version.
QUIET = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}


def get_tools(kind: Literal["python", "node"]) -> Path:
    """The folder of the tools' programs. The first time, they are installed."""
    got = subprocess.run(  # noqa: S603 - our own script
        [ROOT / "scripts/api-tools", kind],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert got.returncode == 0, got.stderr
    return Path(got.stdout.strip())


def run(
    tools: Path, program: str, *arguments: str | Path, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it in `folder`, where what it writes stays; it finds `tools` first, and none of our modules."""
    names = ("HOME", "LANG", "TMPDIR")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    path = f"{tools}:{os.environ['PATH']}"
    return subprocess.run(  # noqa: S603 - with arguments of ours
        [program, *arguments],
        cwd=folder,
        env=inherited | QUIET | environment | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
