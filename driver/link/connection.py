"""The library's connection to the plane with one more method: several frames in one write.

Part of `driver.link`; imports `websockets`. A small frame costs the kernel more than the library: each would
be a system call of its own, where many can share one.
"""

from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection


class Connection(ClientConnection):
    """A `driver.link.socket.Socket`."""

    async def send_together(self, frames: Sequence[bytes]) -> None:
        """See `Socket.send_together`. None of the frames is fragmented, so none can be in another's way."""
        async with self.send_context():
            for frame in frames:
                self.protocol.send_text(frame)
            # the context would write them one by one
            self.transport.write(b"".join(self.protocol.data_to_send()))
