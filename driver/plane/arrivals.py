"""Frames of one daemon's stream that wait to be committed: a queue that is bounded in frames and in bytes.

Part of `driver.plane`; imports anyio and its sibling `intake`.
"""

from typing import Final

import anyio

from driver.plane.intake import Arrival

FRAMES_MAX: Final = 256
"""Frames that may wait; also the most that one commit takes."""
BYTES_MAX: Final = 8_388_608
"""Characters of text that may wait, and as many again in the commit under way: a frame may have a mebibyte,
and 256 of those from each of many daemons would be too much. One frame always goes."""


class Arrivals:
    """One reader puts, one committer takes. Beyond the bounds the reader waits, and the daemon with it."""

    def __init__(self) -> None:
        self._waiting: list[Arrival] = []
        self._size = 0
        self._filled = anyio.Event()
        self._taken = anyio.Event()

    async def put(self, arrival: Arrival) -> None:
        """Add a frame, once there is room for it."""
        size = len(arrival.text)
        while self._waiting and (len(self._waiting) >= FRAMES_MAX or self._size + size > BYTES_MAX):
            self._taken = anyio.Event()
            await self._taken.wait()
        self._waiting.append(arrival)
        self._size += size
        self._filled.set()

    async def take(self) -> list[Arrival]:
        """Return all that waits, once there is something."""
        while not self._waiting:
            self._filled = anyio.Event()
            await self._filled.wait()
        waiting, self._waiting, self._size = self._waiting, [], 0
        self._taken.set()
        return waiting
