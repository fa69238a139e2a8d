"""Waits for a file to grow, by inotify: no loop that sleeps, and no moment that it misses."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from tests.system.plane import PATIENCE_S

IN_MODIFY: Final = 2
EVENTS_BYTES_MAX: Final = 4_096


async def file_until(path: Path, reached: Callable[[], bool]) -> None:
    """Return once `reached()` holds: it is asked after every write to the file. Fails after `PATIENCE_S`."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        added: int = libc.inotify_add_watch(watch, os.fsencode(path), IN_MODIFY)
        assert added > 0, os.strerror(ctypes.get_errno())
        with anyio.move_on_after(PATIENCE_S):
            while not reached():
                await anyio.wait_readable(watch)
                os.read(watch, EVENTS_BYTES_MAX)
    finally:
        os.close(watch)
    assert reached(), f"waited {PATIENCE_S} s in vain for {path.name}: {_tail(path)}"


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-4000:]
