"""The agent's end of the relay: its standard input and output, be they pipes, sockets, files or a terminal.

Part of `driver.gateway`; imports anyio and `driver.reading` alone.
"""

import os
import select
from typing import Final

import anyio

from driver.reading import Reader

CHUNK_BYTES: Final = 65_536
"""What is read at once."""
PIECE: Final = 4_096
"""What a pipe that is writable takes at once without blocking (PIPE_BUF of pipe(7))."""


class Input:
    """Bytes from a file descriptor."""

    def __init__(self, fd: int) -> None:
        self._reader: Final = Reader(fd, lambda: os.read(fd, CHUNK_BYTES))
        if not _may_wait(fd):
            self._reader.end()

    async def receive(self) -> bytes:
        """Return some bytes. Raises `anyio.EndOfStream` at the end."""
        data = await self._reader.receive()
        if not data:
            raise anyio.EndOfStream
        return data


class Output:
    """Bytes to a file descriptor; whole messages, one after the other."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waits = _may_wait(fd)
        self._lock = anyio.Lock(fast_acquire=True)

    async def send(self, data: bytes) -> None:
        """Write all of it. Raises `OSError` where nobody reads any more. Never blocks the loop."""
        async with self._lock:
            rest = memoryview(data)
            while rest:
                if self._waits and not _takes(self._fd):
                    await anyio.wait_writable(self._fd)
                try:
                    rest = rest[os.write(self._fd, rest[:PIECE]) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._fd)


def _may_wait(fd: int) -> bool:
    """Whether a descriptor can be watched: a file, or /dev/null, is always ready, and the kernel refuses."""
    with select.epoll() as asked:
        try:
            asked.register(fd, 0)
        except PermissionError:
            return False
    return True


def _takes(fd: int) -> bool:
    """Whether a piece can be written now."""
    return bool(select.select((), (fd,), (), 0)[1])
