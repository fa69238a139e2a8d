"""The daemon under strace: how often it asks the disk, and what a slow disk does to its event loop."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from tests.bench.numbers import Window, per_call, traced_syncs
from tests.bench.plane import load_plane
from tests.bench.subjects.daemon import STRACE, SYNCS, subject
from tests.bench.subjects.noop import HEARTBEAT

DELAY_MS: Final = 200
SLOW_DISK: Final = (
    *STRACE,
    *("-e", "trace=fsync,fdatasync"),
    *("-e", f"inject=fsync,fdatasync:delay_enter={DELAY_MS * 1_000}"),
)
WARM_S: Final = 0.3


async def count_syncs(folder: Path, rounds: int, seconds: float) -> Mapping[str, float]:
    """Return the syncs for each call, alone and with 64 in flight, checkpoints included.

    Rounds are counted together: a window has few checkpoints, of three syncs each, where it has any.
    """
    windows: dict[int, list[Window]] = {1: [], 64: []}
    async with load_plane() as plane, subject(folder, plane.url, trace=SYNCS) as daemon:
        await daemon.connected(plane.connected)
        await plane.measure(64, WARM_S)
        for _ in range(rounds):
            for in_flight, measured in windows.items():
                window, _ = await plane.measure(in_flight, seconds)
                measured.append(window)
    moments = traced_syncs(daemon.trace.read_text())
    return {f"syncs@{n}": per_call(measured, moments) for n, measured in windows.items()}


async def longest_stalls(folder: Path, rounds: int, seconds: float) -> list[Mapping[str, float]]:
    """Return how long the event loop stood still at most in each round, while each sync took 200 ms more."""
    beats = folder / "beats"
    windows: list[Window] = []
    async with (
        load_plane() as plane,
        subject(folder, plane.url, trace=SLOW_DISK, environment={HEARTBEAT: str(beats)}) as daemon,
    ):
        await daemon.connected(plane.connected)
        await plane.measure(64, WARM_S)
        for _ in range(rounds):
            window, _ = await plane.measure(64, seconds)
            windows.append(window)
    gaps: list[tuple[float, float]] = json.loads(await anyio.Path(beats).read_text())
    return [
        {"stall_ms": 1e3 * max((gap for at, gap in gaps if window.began <= at <= window.ended), default=0.0)}
        for window in windows
    ]
