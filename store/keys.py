"""The key that digests of secrets are made with: without it, a short secret could be guessed from its digest.

Part of `store`; imports `store.errors` and `store.folder`. 32 random bytes, 0600, made once for each state
folder, before anything is recorded in it. The journal remembers which key it has used by a check value that
tells nothing about the key; so a key that was lost or exchanged is noticed before it makes a command that is
delivered again look like a new one.
"""

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

from store.durable import write_durably
from store.errors import DigestKeyMissing, DigestKeyWrong
from store.folder import check_file
from store.records import Digest

KEY: Final = "digest.key"
KEY_BYTES: Final = 32
_CHECK: Final = b"effectd: which key is this?"
_CHECK_DIGITS: Final = 32


class DigestKey:
    """A key. Its bytes are shown nowhere."""

    __slots__ = ("_key", "check")

    def __init__(self, key: bytes) -> None:
        self._key: Final = key
        self.check: Final = self.digest(_CHECK)[:_CHECK_DIGITS]
        """Tells this key from others, and nothing about it."""

    def digest(self, data: bytes) -> Digest:
        """Return the HMAC-SHA-256 of `data` under this key, as hex digits."""
        return Digest(hmac.digest(self._key, data, hashlib.sha256).hex())

    def __repr__(self) -> str:
        return f"DigestKey(check={self.check!r})"


def find_key(folder: Path, used: str | None) -> DigestKey | None:
    """Return the folder's key; None where there is none, and the journal has `used` none yet.

    `used` is the check value of the journal's head. Raises `DigestKeyMissing`, `DigestKeyWrong`,
    `FolderInsecure` and OSError.
    """
    path = folder / KEY
    try:
        check_file(path, path.lstat())
        content = path.read_bytes()
    except FileNotFoundError:
        if used is not None:
            raise DigestKeyMissing(path) from None
        return None
    if len(content) != KEY_BYTES:
        raise DigestKeyWrong(path, f"has {len(content)} bytes instead of {KEY_BYTES}")
    key = DigestKey(content)
    if used not in (None, key.check):
        raise DigestKeyWrong(path, "is not the key that this journal's digests were made with")
    return key


def make_key(folder: Path) -> DigestKey:
    """Make the folder's key, durable. Raises OSError."""
    content = secrets.token_bytes(KEY_BYTES)
    write_durably(folder / KEY, content)
    return DigestKey(content)
