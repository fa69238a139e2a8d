"""The socket between a relay and the daemon, read and written in as few turns of the loop as it takes.

Part of `driver.gateway`; imports anyio and `driver.reading` alone, for the relay has it too.
"""

import math
import socket
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import SocketAttribute, SocketStream

from driver.reading import Reader

CHUNK_BYTES: Final = 65_536
"""What is read at once."""


class Connection:
    """One end of it. Closes `stream` at its own end; nobody else may read or write there meanwhile."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream: Final = stream
        self._socket: Final[socket.socket] = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no Django
        self._reader: Final = Reader(self._socket.fileno(), lambda: self._socket.recv(CHUNK_BYTES))
        self._sending: Final = anyio.Lock(fast_acquire=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._reader.close()
        await self._stream.aclose()

    async def receive(self) -> bytes:
        """Return some bytes. Raises `anyio.EndOfStream` at the end, and `OSError`."""
        data = await self._reader.receive()
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, data: bytes, *, stall_s: float = math.inf) -> None:
        """Write all of it, behind what others write. Raises `OSError`.

        `stall_s`: how long it may take once the other end does not take all of it at once; then this raises
        `TimeoutError`. So, or cancelled in the middle of a message, it ends the connection: the other end
        could not read what follows.
        """
        async with self._sending:
            rest = memoryview(data)
            try:
                rest = self._taken(rest)
                if rest:
                    with anyio.fail_after(stall_s):
                        while rest:
                            await anyio.wait_writable(self._socket)
                            rest = self._taken(rest)
            except BaseException:
                if 0 < len(rest) < len(data):
                    self.cut()
                raise

    def _taken(self, rest: memoryview) -> memoryview:
        """Write what the socket takes now; return what is left."""
        try:
            return rest[self._socket.send(rest) :]
        except BlockingIOError:
            return rest

    def cut(self) -> None:
        """Let both ends see that it is over."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is over already
