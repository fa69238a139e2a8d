"""The disk on its own: how many appends of 4 KiB it makes durable in a second, one after the other."""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.numbers import Latencies

BLOCK: Final = b"\xa5" * 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRate:
    """Appends a second, and how long each took."""

    rate: float
    latencies: Latencies


def measure_disk(folder: Path, seconds: float) -> DiskRate:
    """Append and fdatasync in `folder` for `seconds`."""
    taken: list[float] = []
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as file:
        began = before = time.perf_counter()
        while before - began < seconds:
            file.write(BLOCK)
            os.fdatasync(file.fileno())
            after = time.perf_counter()
            taken.append(after - before)
            before = after
    return DiskRate(rate=len(taken) / (before - began), latencies=Latencies(taken))
