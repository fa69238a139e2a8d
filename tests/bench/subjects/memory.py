"""The daemon's memory over very many calls: it must not grow with them."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.bench.plane import load_plane
from tests.bench.processes import rss_bytes
from tests.bench.subjects.daemon import subject

IN_FLIGHT: Final = 64
SHARE_WARM: Final = 0.2
"""The part of the calls after which all that is filled once (caches, pools, queues) is full."""
SLICE_S: Final = 0.25


async def memory_over(folder: Path, calls: int, seconds_max: float) -> Mapping[str, float]:
    """Return the memory after a fifth of the calls and at their end, and how many were made in the time."""
    made, warm_bytes = 0, 0
    async with load_plane() as plane, subject(folder, plane.url) as daemon:
        await daemon.connected(plane.connected)
        until = time.perf_counter() + seconds_max  # a start counts for nothing, however long it takes
        while made < calls and (now := time.perf_counter()) < until:
            window, _ = await plane.measure(IN_FLIGHT, SLICE_S)
            made += window.calls
            if not warm_bytes and (
                made >= calls * SHARE_WARM or until - now <= seconds_max * (1 - SHARE_WARM)
            ):
                warm_bytes = rss_bytes(daemon.pid)
        return {
            "memory.calls": float(made),
            "memory.warm": float(warm_bytes),
            "memory.end": float(rss_bytes(daemon.pid)),
        }
