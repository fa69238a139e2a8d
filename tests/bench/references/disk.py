"""Reference (a): how many blocks of 4 KiB the disk makes durable in a second, one after the other.

Appends need the file system's own bookkeeping with each fdatasync, overwrites do not. A journal's `-wal` is
appended to until its first checkpoint, and overwritten from then on.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

BLOCK: Final = b"\xa5" * 4_096
BLOCKS: Final = 1_000
"""Blocks that are overwritten in turn: as many as a `-wal` has pages."""


def measure_disk(folder: Path, seconds: float) -> tuple[float, float]:
    """Return appends a second, and overwrites a second, each measured for half of `seconds`."""
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        descriptor = file.fileno()
        appends = _rate(lambda n: os.write(descriptor, BLOCK), descriptor, seconds / 2)
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        descriptor = file.fileno()
        os.write(descriptor, BLOCK * BLOCKS)
        os.fsync(descriptor)
        overwrites = _rate(
            lambda n: os.pwrite(descriptor, BLOCK, n % BLOCKS * len(BLOCK)), descriptor, seconds / 2
        )
    return appends, overwrites


def _rate(write: Callable[[int], int], descriptor: int, seconds: float) -> float:
    began = now = time.perf_counter()
    count = 0
    while now - began < seconds:
        write(count)
        os.fdatasync(descriptor)
        count += 1
        now = time.perf_counter()
    return count / (now - began)
