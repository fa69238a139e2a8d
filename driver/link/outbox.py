"""Frames on their way to one socket: a queue that is bounded in frames and in bytes.

Part of `driver.link`; imports `driver.core.signals`.
"""

import asyncio
from collections import deque
from typing import Final, TypeAlias

from driver.core.signals import CloseLink

FRAMES_MAX: Final = 8_192
"""Frames that may wait; the stream's own window is far below (`driver.core.stream`)."""
BYTES_MAX: Final = 16_777_216
"""Bytes that may wait: twice what the stream has in flight. A plane that lets more pile up does not read."""
ROOMY_BYTES: Final = 1_048_576
"""Below this, answers to redelivered commands are added: they can wait, so they never fill the queue."""
BATCH_MAX: Final = 64
"""Frames written under one deadline."""
BATCH_BYTES: Final = 1_048_576
"""The same in bytes: so much is written at once, or one longer frame."""

Item: TypeAlias = bytes | CloseLink


class Outbox:
    """One writer takes, anybody puts."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        # made once, and set and cleared for each frame
        self._filled = asyncio.Event()
        self._roomy = asyncio.Event()
        self._roomy.set()

    def put(self, item: Item) -> bool:
        """Add a frame, or the close that ends them. Returns False, and adds nothing, where none fits."""
        size = _size(item)
        if len(self._items) >= FRAMES_MAX or self._bytes + size > BYTES_MAX:
            return False
        self._items.append(item)
        self._bytes += size
        self._filled.set()
        if self._bytes >= ROOMY_BYTES:
            self._roomy.clear()
        return True

    async def take(self) -> tuple[list[bytes], CloseLink | None]:
        """Return the frames that wait, a bounded number of them, once there is at least one.

        And the close that follows them, if there is one.
        """
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        frames, size, close = list[bytes](), 0, None
        while self._items and len(frames) < BATCH_MAX and size < BATCH_BYTES and close is None:
            item = self._items.popleft()
            if isinstance(item, CloseLink):
                close = item
            else:
                frames.append(item)
                size += len(item)
        self._bytes -= size
        if self._bytes < ROOMY_BYTES:
            self._roomy.set()
        return frames, close

    async def roomy(self) -> None:
        """Return once little waits, or the outbox was given up."""
        await self._roomy.wait()

    def give_up(self) -> None:
        """Let go whoever waits for room: nothing is sent any more."""
        self._items.clear()
        self._bytes = 0
        self._roomy.set()


def _size(item: Item) -> int:
    return 0 if isinstance(item, CloseLink) else len(item)
