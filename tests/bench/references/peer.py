"""A process of its own for each foreign library: it is told what to measure, and answers, line by line."""

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.bench.processes import Lines, spoken_by

Measure = Callable[[int, float], float]
"""Keeps so many calls in flight for so many seconds, and returns calls a second."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The running process, seen from the bench."""

    lines: Lines

    async def measure(self, in_flight: int, seconds: float) -> float:
        """Return calls a second."""
        await self.lines.tell(json.dumps([in_flight, seconds]))
        return float(json.loads(await self.lines.receive()))


@asynccontextmanager
async def peer(module: str, mode: str, folder: Path) -> AsyncGenerator[Peer]:
    """Run `tests.bench.references.MODULE` with its files in `folder`."""
    await anyio.Path(folder).mkdir()
    async with spoken_by(
        sys.executable, "-m", f"tests.bench.references.{module}", mode, str(folder)
    ) as lines:
        assert await lines.receive() == "ready"
        yield Peer(lines)


def serve(measure: Measure) -> None:
    """Answer on stdin and stdout until nobody asks any more."""
    print("ready", flush=True)  # noqa: T201 - the bench reads it
    for line in sys.stdin:
        in_flight, seconds = json.loads(line)
        print(measure(in_flight, seconds), flush=True)  # noqa: T201 - as above
