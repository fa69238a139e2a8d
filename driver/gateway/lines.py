"""Lines from a stream of bytes, with a bound.

Part of `driver.gateway`; imports anyio alone, for the relay reads with it too.
"""

from typing import Final, Protocol

import anyio

HEAD_BYTES: Final = 4_096
"""Of each end of a line that is too long, what is kept to tell what it was."""


class LineTooLong(ValueError):
    """A line is above the bound; what comes behind it cannot be told from it."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        super().__init__(f"a line is longer than {bytes_max:,} bytes")


class Source(Protocol):
    """Where bytes come from."""

    async def receive(self) -> bytes:
        """Return some bytes. Raises `anyio.EndOfStream` at the end."""
        ...


class Lines:
    """Splits what is received. `bytes_max` may be changed between two lines."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._buffer = bytearray()
        self._searched = 0

    async def next(self, source: Source) -> bytes | None:
        """Return the next line without its end; None at the end of the stream. Raises `LineTooLong`."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                found = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return found
            self._searched = len(self._buffer)
            if len(self._buffer) > self.bytes_max:
                raise LineTooLong(self.bytes_max)
            try:
                self._buffer += await source.receive()
            except anyio.EndOfStream:
                return None

    async def skip(self, source: Source) -> bytes:
        """Leave out the rest of a line that is too long. Returns its beginning and its end, in one."""
        head, tail = bytes(self._buffer[:HEAD_BYTES]), b""
        self._searched = 0
        while (end := self._buffer.find(b"\n")) < 0:
            tail = (tail + self._buffer)[-HEAD_BYTES:]
            self._buffer.clear()
            try:
                self._buffer += await source.receive()
            except anyio.EndOfStream:
                return head + tail
        tail = (tail + self._buffer[:end])[-HEAD_BYTES:]
        del self._buffer[: end + 1]
        return head + tail
