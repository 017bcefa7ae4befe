"""The database server programs on this machine, how they are run and their data folders.

MariaDB is Debian's `mariadb-server-core`. MySQL is run from a folder with a Debian of its own, which
`scripts/test --server mysql` makes in the cache folder.
"""

import fcntl
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Kind = Literal["mariadb", "mysql"]

INITIALISE_SECONDS = 120
STOP_SECONDS = 30

_SCRATCH_PREFIX = "cupo-server-"
# The server programs lie in sbin, which an ordinary user's PATH leaves out.
_PATH = os.pathsep.join(
    (os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
)
_INITIAL_SIZE = {"mariadb": "--innodb-log-file-size=48M", "mysql": "--innodb-redo-log-capacity=64M"}


class ServerError(Exception):
    """A server is missing, did not start, or is not ours to stop; the text says what to do."""


@dataclass(frozen=True)
class Installation:
    kind: Kind
    version: str
    enter: tuple[str, ...]  # the words before a program's name: the folder it runs in, whose rights it has
    server: tuple[str, ...]
    initialiser: tuple[str, ...]
    root: Path  # what the programs see as /
    scratch: Path  # where data folders may lie
    owner: tuple[int, int] | None  # user and group of the data folders; None where they are ours

    def server_command(self, *options: str) -> tuple[str, ...]:
        return (*self.enter, *self.server, "--no-defaults", _INITIAL_SIZE[self.kind], *options)

    def that_outlives_us(self) -> "Installation":
        """The same, but what it runs goes on when the process ends that started it."""
        words = list(self.enter)
        at = words.index("--pdeathsig")
        return replace(self, enter=(*words[:at], *words[at + 2 :]))

    def inner_path(self, path: Path) -> str:
        return f"/{path.relative_to(self.root)}"

    def hand_over(self, folder: Path) -> None:
        """Make the folder and all in it the server's own."""
        if self.owner:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, *self.owner)


@dataclass
class Process:
    """The running program of one private server, of whatever kind, a new one after each stop."""

    command: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] | None = None  # None: ours
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """None while it is stopped."""
        return self._running.pid if self._running and self._running.poll() is None else None

    @property
    def exit_status(self) -> int | None:
        """Of the last one that ended; minus the signal's number where one ended it."""
        return self._running.poll() if self._running else None

    def start(self) -> None:
        # The kernel sends the parent-death signal when the *thread* that started the child ends.
        if threading.current_thread() is not threading.main_thread():
            raise ServerError("start a server from the main thread, or it dies with its thread")
        if self.pid is not None:
            raise ServerError("the server is running already")
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal must reach us only, who stop the server.
            self._running = subprocess.Popen(  # noqa: S603  the words are ours, nothing comes from outside
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environment,
            )

    def send(self, number: signal.Signals) -> None:
        if self._running is None or self.pid is None:
            raise ServerError("the server is not running")
        self._running.send_signal(number)

    def stop(self) -> None:
        if self._running is None:
            return
        self._running.terminate()
        self._running.send_signal(signal.SIGCONT)  # a paused process keeps SIGTERM waiting
        try:
            self._running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def find_installation(kind: Kind) -> Installation:
    """Raises ServerError, with the way to a server, where there is none."""
    return _find_mariadb() if kind == "mariadb" else _find_mysql()


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cupo"


def initialised_data(installation: Installation) -> Path:
    """A data folder to copy, made once for each version of the server: making one takes seconds."""
    kept = cache_folder() / f"data-{installation.kind}-{installation.version}"
    if not kept.is_dir():
        with scratch_folder(installation) as folder:
            _initialise(installation, folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            half_made = Path(tempfile.mkdtemp(prefix="data-new-", dir=kept.parent))
            shutil.copytree(folder / "data", half_made, dirs_exist_ok=True)
            # Two runs may come here at once: a rename makes it whole or not at all, and the second is spare.
            with suppress(OSError):
                half_made.rename(kept)
            shutil.rmtree(half_made, ignore_errors=True)
    return kept


@contextmanager
def scratch_folder(installation: Installation) -> Iterator[Path]:
    """A folder for this server's data, removed at the end; if we are killed, by the next caller."""
    _remove_abandoned(installation.scratch)
    unnamed = Path(tempfile.mkdtemp(prefix=".cupo-", dir=installation.scratch))
    folder = installation.scratch / f"{_SCRATCH_PREFIX}{unnamed.name.removeprefix('.cupo-')}"
    with (unnamed / "in-use").open("w") as lock:
        # Locked before it has the name that _remove_abandoned looks for; unlocked however we end.
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(folder)
        installation.hand_over(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(scratch: Path) -> None:
    for folder in scratch.glob(f"{_SCRATCH_PREFIX}*"):
        # OSError: another user's, in use, or just removed by its owner.
        with suppress(OSError), (folder / "in-use").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _find_mariadb() -> Installation:
    server, initialiser = _which("mariadbd"), _which("mariadb-install-db")
    if not server or not initialiser:
        raise ServerError(
            "no MariaDB here: install the packages mariadb-server-core and mariadb-client-core, "
            "or give CUPO_TEST_DATABASE_URL=mysql://user:password@host/"
        )
    owner = _server_account()
    # Its root may log in only by the socket, as the account that runs it: nobody gets in without a password.
    login = pwd.getpwuid(owner[0] if owner else os.getuid()).pw_name
    return Installation(
        kind="mariadb",
        version=_version(server),
        enter=_setpriv(owner),
        server=(server,),
        initialiser=(
            initialiser,
            "--no-defaults",
            "--skip-test-db",
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={login}",
        ),
        root=Path("/"),
        scratch=Path(tempfile.gettempdir()),
        owner=owner,
    )


def _find_mysql() -> Installation:
    folder = cache_folder() / "mysql"
    if not (folder / "usr/sbin/mysqld").exists():
        raise ServerError(
            "no MySQL here: scripts/test --server mysql makes one, "
            "or give CUPO_TEST_DATABASE_URL=mysql://user:password@host/"
        )
    owner = _server_account()
    if owner:
        # Only root may enter the folder as its /, so the rights are dropped inside.
        chroot = _which("chroot") or "chroot"
        server: tuple[str, ...] = ("/usr/sbin/mysqld",)
        enter, root, scratch = (chroot, str(folder), *_setpriv(owner)), folder, folder / "tmp"
        asked = (chroot, str(folder), *server)
    else:
        # Without root the program is loaded from the folder, with the libraries that it was built for.
        loader = next(folder.glob("lib*/ld-linux*"))
        libraries = next(folder.glob("usr/lib/*-linux-gnu*"))
        server = (str(loader), "--library-path", str(libraries), str(folder / "usr/sbin/mysqld"))
        enter, root, scratch = _setpriv(owner), Path("/"), Path(tempfile.gettempdir())
        asked = server
    basedir = "/usr" if owner else str(folder / "usr")
    return Installation(
        kind="mysql",
        version=_version(*asked),
        enter=enter,
        server=server,
        initialiser=(*server, "--no-defaults", "--initialize-insecure", f"--basedir={basedir}"),
        root=root,
        scratch=scratch,
        owner=owner,
    )


def _server_account() -> tuple[int, int] | None:
    """Neither server should run as root: as root, the account to take instead."""
    if os.getuid() != 0:
        return None
    for name in ("mysql", "nobody"):
        with suppress(KeyError):
            account = pwd.getpwnam(name)
            return account.pw_uid, account.pw_gid
    raise ServerError("no account mysql or nobody here to run the server as")


def _setpriv(owner: tuple[int, int] | None) -> tuple[str, ...]:
    # A change of the user clears the parent-death signal: setpriv does both, in the right order.
    # KILL and not TERM: a server that a test has paused would never see TERM.
    user = (f"--reuid={owner[0]}", f"--regid={owner[1]}", "--clear-groups") if owner else ()
    return ("setpriv", *user, "--pdeathsig", "KILL", "--")


def _initialise(installation: Installation, folder: Path) -> None:
    command = (
        *installation.enter,
        *installation.initialiser,
        _INITIAL_SIZE[installation.kind],
        f"--datadir={installation.inner_path(folder / 'data')}",
    )
    ended = _run(command)
    if ended.returncode:
        raise ServerError(f"{installation.kind}: no data folder could be made:\n{ended.stdout}")


def _version(*program: str) -> str:
    said = _run((*program, "--version")).stdout
    found = re.search(r"Ver (\S+)", said)
    if not found:
        raise ServerError(f"{program[-1]} --version says {said!r}")
    return found[1]


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  the words are ours, nothing comes from outside
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INITIALISE_SECONDS,
        check=False,
        start_new_session=True,
    )


def _which(program: str) -> str | None:
    return shutil.which(program, path=_PATH)
