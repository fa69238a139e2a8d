"""What a message over a WebSocket costs: an echo, one at a time, and a stream in one direction.

Run as `python -m tests.bench.references.echo` it is the server, which prints its port.
"""

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.bench.processes import spoken_by

MESSAGE: Final = '{"type": "command", "command_id": "cmd-1000", "run_id": "run-10", "data": {"n": 1000}}' * 2


@asynccontextmanager
async def echo_server() -> AsyncGenerator[str]:
    """Run the server in its own process, and yield its URL."""
    async with spoken_by(sys.executable, "-m", "tests.bench.references.echo") as lines:
        yield f"ws://127.0.0.1:{(await lines.receive()).strip()}"


async def measure_echo(url: str, seconds: float) -> tuple[float, float]:
    """Return echoes a second, one at a time, and the client's processor time for one, in seconds."""
    async with connect(url, compression=None, proxy=None) as socket:
        await socket.send(MESSAGE)
        await socket.recv()
        echoes, cpu_s = 0, time.process_time()
        began = now = time.perf_counter()
        while now - began < seconds:
            await socket.send(MESSAGE)
            await socket.recv()
            echoes += 1
            now = time.perf_counter()
        return echoes / (now - began), (time.process_time() - cpu_s) / echoes


async def _serve() -> None:
    async def answer(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(answer, "127.0.0.1", 0, compression=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - whoever started it reads it
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(_serve)
