"""The embedded default: one machine, SQLite in a folder, a root key beside it; all for its owner."""

import os
import secrets
import stat
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.settings import BadSettings, Settings
from app.token_settings import NO_ROOT_KEY, is_fit_for_a_key

KEY_FILE = "root_key"
OWNER_ONLY = 0o700
_making = threading.Lock()


def folder(settings: Settings) -> Path:
    """The folder of the SQLite file, made for its owner only if it is missing."""
    path = Path(settings.url.database or "").parent
    try:
        path.mkdir(OWNER_ONLY, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSettings(f"CUPO_DATABASE_URL: the folder {path} cannot be made: {error.strerror}") from None
    return path


def close_to_others(_dialect: Any, _record: Any, arguments: Any, _named_arguments: Any) -> None:
    """SQLAlchemy's do_connect: nobody but its owner reads the SQLite file, which has webhooks' secrets.

    Made before SQLite does it, whose other files get this one's mode; what is there already is closed. Where
    that is not to be had, as on a file system without modes, nothing comes of it.
    """
    path = str(arguments[0])
    # No other thread may have it open while it is closed here: that would end SQLite's locks on it (POSIX).
    with _making, suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            mode = Path(path + suffix).stat().st_mode
            if stat.S_ISREG(mode) and stat.S_IMODE(mode) & ~OWNER_ONLY:
                Path(path + suffix).chmod(stat.S_IMODE(mode) & OWNER_ONLY)


def has_root_key(settings: Settings) -> bool:
    """Whether a root key lets in: the one that is set, or on the embedded default its own."""
    if settings.root_key is None:
        return settings.is_embedded
    return settings.root_key.get_secret_value() != NO_ROOT_KEY


def resolve_root_key(settings: Settings) -> str | None:
    """The root key as set, or None; on the embedded default else its own, made at the first start and kept.

    On any other database none is made: each replica's would differ. Raises BadSettings where the embedded
    one cannot be read.
    """
    if not has_root_key(settings):
        return None
    if settings.root_key is not None:
        return settings.root_key.get_secret_value()
    path = folder(settings) / KEY_FILE
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_text(errors="replace").strip()
    except OSError as error:
        raise BadSettings(f"CUPO_ROOT_KEY: is not set and {path} cannot be used: {error.strerror}") from None
    if not is_fit_for_a_key(key):
        raise BadSettings(f"CUPO_ROOT_KEY: is not set and {path} holds no key; remove it to get a new one")
    return key


def _make_key(path: Path) -> None:
    """Write a new key for its owner's eyes only. Of several processes that start at once, the first wins."""
    descriptor, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        with suppress(FileExistsError):
            os.link(draft, path)  # whole or not at all, and never over another's
    finally:
        Path(draft).unlink()
