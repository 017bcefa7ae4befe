"""What an API key looks like: `cupo_<id>_<secret>`, all of it one word to whoever double-clicks it."""

import hashlib
import re
import secrets
import string
from dataclasses import dataclass, field

PREFIX = "cupo_"
ID_CHARACTERS = string.ascii_lowercase + string.digits
ID_LENGTH = 12
ID_PATTERN = f"^[a-z0-9]{{{ID_LENGTH}}}$"
SECRET_CHARACTERS = string.ascii_letters + string.digits
SECRET_LENGTH = 43  # of 62 characters: 256 bits
_TOKEN = re.compile(f"{PREFIX}([a-z0-9]{{{ID_LENGTH}}})_[A-Za-z0-9]{{{SECRET_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class Token:
    """A new key. `text` is shown once and kept nowhere; `id` is no secret."""

    id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        return digest_of(self.text)


def new_token() -> Token:
    key_id, secret = _random(ID_CHARACTERS, ID_LENGTH), _random(SECRET_CHARACTERS, SECRET_LENGTH)
    return Token(key_id, f"{PREFIX}{key_id}_{secret}")


def _random(characters: str, length: int) -> str:
    return "".join(secrets.choice(characters) for _ in range(length))


def digest_of(text: str) -> bytes:
    """SHA-256 of the whole of what was sent, so that a digest fits the row of no other id.

    A secret of 256 random bits cannot be guessed, whatever the hash costs: a slow one would only slow us.
    """
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def id_in(text: str) -> str | None:
    """The id, where the text has the form of a key."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else found[1]
