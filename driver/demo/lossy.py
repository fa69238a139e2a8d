"""A plane for the in-memory driver, behind a network that loses receipts.

Part of `driver.demo`; imports the narrator. It does what such planes do: a command without a receipt is given
again to whoever says that it is ready. The network takes the first receipts and breaks the connection, so
that neither side knows.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from driver.demo.inmemory import LINE_BYTES_MAX
from driver.demo.narrator import Narrator

Json: TypeAlias = dict[str, object]


@dataclass(slots=True, kw_only=True)
class LossyPlane:
    """One command, and what became of its receipt."""

    command: Json
    losing: int
    """How many receipts the network still loses."""
    narrator: Narrator
    deliveries: int = 0
    receipts: int = 0

    async def serve(self, driver: SocketStream) -> None:
        """Talk to one connection of the driver."""
        async with driver:
            try:
                message = json.loads(
                    await BufferedByteReceiveStream(driver).receive_until(b"\n", LINE_BYTES_MAX)
                )
                await self._answer(driver, message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead):
                return

    async def _answer(self, driver: SocketStream, message: Json) -> None:
        if "ready" in message:
            await self._give(driver)
        elif self.losing:
            self.losing -= 1
            self.narrator.quote("network", "a receipt was lost, and the connection with it")
        else:
            self.receipts += 1
            await driver.send(json.dumps({"ack": message["command_id"]}).encode() + b"\n")

    async def _give(self, driver: SocketStream) -> None:
        if self.receipts:
            await anyio.sleep_forever()
        self.deliveries += 1
        again = "" if self.deliveries == 1 else " again: it has no receipt for it"
        self.narrator.quote("plane", f"gives {self.command['command_id']}{again}")
        await driver.send(json.dumps(self.command).encode() + b"\n")


@asynccontextmanager
async def lossy_plane(
    socket: Path, command: Json, *, losing: int, narrator: Narrator
) -> AsyncGenerator[LossyPlane]:
    """Serve a plane on the Unix socket `socket` until the context is left."""
    plane = LossyPlane(command=command, losing=losing, narrator=narrator)
    async with await anyio.create_unix_listener(socket) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, plane.serve)
        yield plane
        tasks.cancel_scope.cancel()
