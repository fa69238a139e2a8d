"""A stream of messages over a plain WebSocket, as fast as it takes them, in a process of its own.

Run as `python -m tests.bench.references.stream URL COUNT MESSAGE`.
"""

import sys
from contextlib import suppress

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.bench.plane import SUBPROTOCOL


async def _main(url: str, count: int, message: str) -> None:
    async with connect(url, subprotocols=[SUBPROTOCOL], compression=None, proxy=None) as socket:
        await socket.send(message)
        await socket.recv()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_listen, socket)
            with suppress(ConnectionClosed):
                for _ in range(count):
                    await socket.send(message)
            await anyio.sleep_forever()


async def _listen(socket: ClientConnection) -> None:
    """Read the acknowledgements, as a driver must."""
    with suppress(ConnectionClosed):
        async for _ in socket:
            pass


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
