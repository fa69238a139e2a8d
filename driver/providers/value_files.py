"""Files that hold one value each, most of them secrets: variables, headers, addresses.

Part of `driver.providers`; imports nothing of ours.

    ValueFileUnusable   a file that the configuration names cannot be a value
"""

import os
import stat
from pathlib import Path
from typing import Final

VALUE_FILE_BYTES_MAX: Final = 65_536
"""What such a file may hold at most."""


class ValueFileUnusable(Exception):
    """The file at `path` cannot be the value of the configuration's `key`. Never quotes what it holds."""

    def __init__(self, key: str, path: Path, detail: str) -> None:
        self.key = key
        self.path = path
        super().__init__(f"{key}: {path} {detail}")


def read_value(key: str, path: Path) -> str:
    """Return the file's text, without one newline at its end; `key` names it in errors.

    Blocks. Raises `ValueFileUnusable`.
    """
    try:
        text = _read(key, path).decode().removesuffix("\n")
    except OSError as error:
        raise ValueFileUnusable(key, path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueFileUnusable(key, path, "is not UTF-8 text") from None
    if not text or "\0" in text:
        raise ValueFileUnusable(key, path, "must hold text, and no zero byte")
    return text


def _read(key: str, path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueFileUnusable(key, path, "is no regular file")
        if status.st_size > VALUE_FILE_BYTES_MAX:
            raise ValueFileUnusable(key, path, f"has more than {VALUE_FILE_BYTES_MAX} bytes")
        return os.read(descriptor, VALUE_FILE_BYTES_MAX)
    finally:
        os.close(descriptor)
