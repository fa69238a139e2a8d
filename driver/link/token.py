"""The bearer token: read from its file at every connect, shown to the plane, and to nobody else.

Part of `driver.link`; imports its errors, and `driver.core.tokens`.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from driver.core.tokens import fault_of
from driver.link.errors import TokenUnusable

TOKEN_BYTES_MAX: Final = 16_384
"""A longer token would not fit the header lines that servers take."""


@dataclass(frozen=True, slots=True)
class Token:
    """A secret: `str()` and `repr()` do not show it."""

    value: str
    readable_by_others: bool

    def __repr__(self) -> str:
        return "Token(…)"


async def read_token(path: Path) -> Token:
    """Return the token in the file at `path`, without the whitespace around it. Raises `TokenUnusable`.

    Cancelled, it leaves the reading thread to itself: a file on a dead network mount may never answer.
    """
    return await anyio.to_thread.run_sync(_read, path, abandon_on_cancel=True)


def _read(path: Path) -> Token:
    try:
        # not blocking, for opening a FIFO without a writer would wait for ever
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise TokenUnusable(path, f"cannot be read ({error.strerror})") from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise TokenUnusable(path, "is no regular file")
        content = os.read(descriptor, TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise TokenUnusable(path, f"cannot be read ({error.strerror})") from error
    finally:
        os.close(descriptor)
    return Token(_parse(path, content), bool(mode & (stat.S_IRGRP | stat.S_IROTH)))


def _parse(path: Path, content: bytes) -> str:
    if len(content) > TOKEN_BYTES_MAX:
        raise TokenUnusable(path, f"is longer than {TOKEN_BYTES_MAX} bytes")
    text = content.decode("ascii", errors="replace").strip()
    if (fault := fault_of(text)) is not None:
        raise TokenUnusable(path, fault)
    return text
