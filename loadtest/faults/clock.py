"""The time of day as a process is told it, which can be put forward while it runs."""

import dataclasses
import shutil
import struct
import subprocess
from pathlib import Path

from loadtest.errors import BadUse

SOURCE = Path(__file__).with_suffix(".c")
COMPILE_SECONDS = 60
DAY_SECONDS = 86_400


@dataclasses.dataclass(frozen=True)
class Clock:
    """Of the processes that are started with its `environment`."""

    library: Path
    file: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "WRONG_CLOCK": str(self.file)}

    def put_forward(self, seconds: int) -> None:
        """How far it is ahead, at once. Written in place: the processes have the file mapped."""
        with self.file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))


def make_clock(folder: Path, name: str) -> Clock:
    """A right one, with its files in `folder`. Raises BadUse where none can be made."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise BadUse("no C compiler here, which clock-step takes: install the packages gcc and libc6-dev")
    library, file = folder / "clock.so", folder / f"{name}.clock"
    if not library.exists():
        ended = subprocess.run(  # noqa: S603 - our own words
            (compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE),
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS,
            check=False,
        )
        if ended.returncode:
            raise BadUse(f"clock-step cannot be made: {ended.stderr.strip()}")
    file.write_bytes(struct.pack("=q", 0))
    return Clock(library, file)
