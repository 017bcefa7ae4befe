"""A headless Chromium: what it makes of a page, and what it complains about."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.programs import BROWSERS, program

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # a page that needs the network is to be found out
    "--enable-logging=stderr",
    "--window-size=1120,1600",
)


@dataclass(frozen=True)
class Opened:
    """The document after loading, and every line that went to the console."""

    document: str
    console: tuple[str, ...]


def open_page(path: Path, profile: Path, *, dark: bool = False) -> Opened:
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    done = subprocess.run(  # noqa: S603 - our own command
        [program(BROWSERS), *FLAGS, scheme, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    console = tuple(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return Opened(done.stdout, console)
