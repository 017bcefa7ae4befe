"""A Redis of the lab's own: it keeps nothing, nobody else reaches it, and it goes when its starter goes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loadtest.errors import BadUse
from loadtest.strategies.redis_lease import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 10
POLL_SECONDS = 0.01


def redis_client(url: str) -> redis.Redis:
    """Tells of a lost Redis at once: redis-py by itself would ask again for seconds."""
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_connect_timeout=START_SECONDS)


class PrivateRedis:
    """One redis-server on a socket in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("redis-server")
        self._command = _with_us(
            [
                program,
                "--port",
                "0",
                "--unixsocket",
                str(folder / "s"),
                "--dir",
                str(folder),
                "--save",
                "",
                "--appendonly",
                "no",
            ]
        )
        self._running: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{folder / 's'}"

    def start(self) -> None:
        """Empty: whatever an earlier one knew is forgotten."""
        # A session of its own: Ctrl-C is for the command, which then stops this.
        self._running = subprocess.Popen(  # noqa: S603  # the words are ours
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        with redis_client(self.url) as asking:
            while True:
                try:
                    asking.ping()
                except redis.ConnectionError:
                    if self._running.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(POLL_SECONDS)
                else:
                    return

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()


def _with_us(command: list[str]) -> list[str]:
    """The kernel kills it with us, even where we are killed; without setpriv the `with` has to do."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command


@contextmanager
def private_redis() -> Iterator[PrivateRedis | None]:
    """None where there is no redis-server to start. Main thread only: it dies with its starter's thread."""
    with tempfile.TemporaryDirectory(prefix="cupo-redis-") as folder:
        try:
            server = PrivateRedis(Path(folder))
        except FileNotFoundError:
            yield None
            return
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextmanager
def redis_for(url: str | None) -> Iterator[str | None]:
    """The URL of the Redis to use: the one given, whose other keys stay, or a private one; None: no Redis."""
    if url is None:
        with private_redis() as server:
            yield None if server is None else server.url
        return
    try:
        with redis_client(url) as asking:
            asking.ping()
    except (ValueError, redis.RedisError) as error:
        raise BadUse(f"no Redis to work with at --redis-url: {error}") from None
    try:
        yield url
    finally:
        forget(url)


def forget(url: str) -> None:
    """Removes the lab's keys and no others."""
    with redis_client(url) as asking:
        for key in asking.scan_iter(match=f"{KEYS}*", count=1000):
            asking.delete(key)


def redis_version(url: str) -> str:
    with redis_client(url) as asking:
        return f"Redis {asking.info('server')['redis_version']}"
