"""A plane that keeps a number of calls in flight, and measures how long each takes to its receipt."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.bench.numbers import Latencies, Window

ACK_EVERY_S: Final = 0.005
"""As a plane does that commits what arrived meanwhile, and then answers for it."""
WINDOW: Final = 4_096
RUNS: Final = 100
SUBPROTOCOL: Final = Subprotocol("effectd.v1")


@dataclass(slots=True)
class LoadPlane:
    """One daemon at a time. Made by `load_plane`."""

    url: str = ""
    connected: anyio.Event = field(default_factory=anyio.Event)
    _socket: ServerConnection | None = None
    _numbers: "count[int]" = field(default_factory=count)
    _sent: dict[str, float] = field(default_factory=dict[str, float])
    _taken: list[float] = field(default_factory=list[float])
    _deadline: float = 0.0
    _idle: anyio.Event = field(default_factory=anyio.Event)
    _last_seq: int = 0

    async def serve(self, socket: ServerConnection) -> None:
        """Talk to the daemon until it goes."""
        with suppress(ConnectionClosed):
            hello = json.loads(await socket.recv())
            self._socket, self._last_seq = socket, hello["acked_seq"]
            await self._say(
                type="welcome", session_id="bench", acked_seq=0, window=WINDOW, max_frame_bytes=1_048_576
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._acknowledge)
                self.connected.set()
                with suppress(ConnectionClosed):
                    async for frame in socket:
                        await self._hear(json.loads(frame))
                tasks.cancel_scope.cancel()

    async def measure(self, in_flight: int, seconds: float) -> tuple[Window, Latencies]:
        """Keep `in_flight` calls under way for `seconds`, and wait for the last of them."""
        self._taken, self._idle = [], anyio.Event()
        began = time.time()
        self._deadline = time.perf_counter() + seconds
        for _ in range(in_flight):
            await self._give()
        await self._idle.wait()
        return Window(began=began, ended=time.time(), calls=len(self._taken)), Latencies(self._taken)

    async def _hear(self, frame: dict[str, Any]) -> None:
        assert frame["type"] == "event", frame
        self._last_seq = frame["seq"]
        if not frame["terminal"]:
            return
        assert frame["kind"] == "operation.succeeded", frame
        now = time.perf_counter()
        self._taken.append(now - self._sent.pop(frame["command_id"]))
        if now < self._deadline:
            await self._give()
        elif not self._sent:
            self._idle.set()

    async def _give(self) -> None:
        number = next(self._numbers)
        command_id = f"cmd-{number}"
        data = {"tool": "bench/count", "arguments": {"n": number}}
        self._sent[command_id] = time.perf_counter()
        await self._say(
            type="command", command_id=command_id, run_id=f"run-{number % RUNS}", kind="tool.call", data=data
        )

    async def _acknowledge(self) -> None:
        acked = 0
        while True:
            await anyio.sleep(ACK_EVERY_S)
            if self._last_seq > acked:
                acked = self._last_seq
                await self._say(type="ack", seq=acked)

    async def _say(self, **frame: object) -> None:
        assert self._socket is not None, "a daemon is connected"
        with suppress(ConnectionClosed):
            await self._socket.send(json.dumps(frame))


@asynccontextmanager
async def load_plane() -> AsyncGenerator[LoadPlane]:
    """Serve on a free port of this machine."""
    plane = LoadPlane()
    async with serve(
        plane.serve,
        "127.0.0.1",
        0,
        subprotocols=[SUBPROTOCOL],
        compression=None,
        max_size=2**20,
    ) as server:
        plane.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/driver"
        yield plane
