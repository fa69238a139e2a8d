"""The library's connection to the plane with one more way to send: several frames in one write.

Part of `driver.link`; imports `websockets`. A small frame costs the kernel more than the library: each would
be a system call of its own, where many can share one. And a write seldom has to wait for the socket: so the
wait is a step of its own, and whoever writes needs no lock, no deadline and no task for the rest.
"""

from collections.abc import Sequence
from contextlib import suppress

from websockets.asyncio.client import ClientConnection
from websockets.protocol import State


class Connection(ClientConnection):
    """A `driver.link.socket.Socket`."""

    def write(self, frames: Sequence[bytes]) -> bool:
        """See `Socket.write`. None of the frames is fragmented, so none can be in another's way."""
        if self.protocol.state is State.OPEN:
            for frame in frames:
                self.protocol.send_text(frame)
            self.transport.write(b"".join(self.protocol.data_to_send()))
        return not self.paused

    async def drained(self) -> None:
        """See `Socket.drained`."""
        with suppress(OSError):  # whoever reads finds out
            await self.drain()
