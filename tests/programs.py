"""Programs that some tests need and that a machine may lack."""

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REDIS = ("redis-server",)
PROMTOOL = ("promtool",)
HAPROXY = ("haproxy",)
DUMP = ("mariadb-dump",)
COMPILER = ("cc",)
WRK = ("wrk",)


def program(names: tuple[str, ...]) -> str:
    """The path of the first that is there.

    Where there is none the test is skipped, but under CI it fails: a test that did not look has not passed.
    """
    found = next(filter(None, map(shutil.which, names)), None)
    if found:
        return found
    without = f"no {names[0]} here: install the package {names[0]}"
    if os.environ.get("CI"):
        pytest.fail(without)
    pytest.skip(without)
