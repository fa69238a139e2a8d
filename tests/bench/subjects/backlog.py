"""A backlog of events that nobody acknowledged: how fast it drains, beside a stream of the same messages.

The plane is the same for both: it reads each frame, and acknowledges what came, every few milliseconds.
Between two rounds it acknowledges nothing, and the daemon, whose window is full, waits.
"""

import json
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from store.head import read_head, write_head
from tests.bench.plane import ACK_EVERY_S, SUBPROTOCOL, WINDOW
from tests.bench.processes import alive_until, rss_bytes, running
from tests.bench.subjects.daemon import subject
from tests.store import large
from tests.store.bulk import CALLS_OF_A_RUN, EVENTS, fill_up

ROUND_S: Final = 300.0
"""How long a round may take."""


@dataclass(slots=True)
class DrainingPlane:
    """Takes events, and counts them."""

    url: str = ""
    connected: anyio.Event = field(default_factory=anyio.Event)
    frames: int = 0
    newest: str | bytes = ""
    _acks: bool = False
    _wanted: int = 0
    _enough: anyio.Event = field(default_factory=anyio.Event)
    _last_seq: int = 0

    async def take(self, count: int) -> float:
        """Take so many more events, and then acknowledge nothing more; return events a second."""
        first, began = self.frames, time.perf_counter()
        self._wanted, self._enough, self._acks = first + count, anyio.Event(), True
        with anyio.fail_after(ROUND_S):
            await self._enough.wait()
        self._acks = False
        return (self.frames - first) / (time.perf_counter() - began)

    async def serve(self, socket: ServerConnection) -> None:
        """Talk to whoever sends events, until it goes."""
        with suppress(ConnectionClosed):
            await socket.recv()
            self._last_seq = 0
            welcome = {"type": "welcome", "session_id": "bench", "acked_seq": 0, "window": WINDOW}
            await socket.send(json.dumps({**welcome, "max_frame_bytes": 1_048_576}))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._acknowledge, socket)
                self.connected.set()
                with suppress(ConnectionClosed):
                    async for frame in socket:
                        self._hear(frame)
                tasks.cancel_scope.cancel()

    def _hear(self, frame: str | bytes) -> None:
        self._last_seq = json.loads(frame)["seq"]
        self.newest = frame
        self.frames += 1
        if self.frames >= self._wanted:
            self._enough.set()

    async def _acknowledge(self, socket: ServerConnection) -> None:
        acked = 0
        with suppress(ConnectionClosed):
            while True:
                await anyio.sleep(ACK_EVERY_S)
                if self._acks and self._last_seq > acked:
                    acked = self._last_seq
                    await socket.send(json.dumps({"type": "ack", "seq": acked}))


@asynccontextmanager
async def draining_plane() -> AsyncGenerator[DrainingPlane]:
    """Serve on a free port of this machine."""
    plane = DrainingPlane()
    async with serve(
        plane.serve, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL], compression=None, max_size=2**20
    ) as server:
        plane.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/driver"
        yield plane


async def make_backlog(folder: Path, events: int) -> int:
    """Make a journal of so many events that nobody has acknowledged; return how many there are."""
    operations = -(-events // EVENTS // CALLS_OF_A_RUN) * CALLS_OF_A_RUN
    async with large.opened(folder):
        pass
    file = folder / "state" / "journal.db"
    await to_thread.run_sync(fill_up, file, operations)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        write_head(connection, replace(read_head(connection), acked_seq=0))
    return operations * EVENTS


async def drain(folder: Path, events: int, rounds: int) -> list[Mapping[str, float]]:
    """Let the daemon drain a backlog in rounds, each beside a stream of a plain WebSocket."""
    events = await make_backlog(folder, events)
    share = events // rounds - WINDOW  # a window of them arrives between two rounds, and counts for none
    found: list[Mapping[str, float]] = []
    async with draining_plane() as plane, subject(folder, plane.url) as daemon:
        await daemon.connected(plane.connected)
        early_bytes = 0
        for _ in range(rounds):
            rate = await plane.take(share)
            now_bytes = rss_bytes(daemon.pid)
            early_bytes = early_bytes or now_bytes
            found.append(
                {
                    "backlog.rate": rate,
                    "stream.rate": await _stream(plane.newest, share),
                    "backlog.memory": now_bytes / early_bytes,
                }
            )
    return found


async def _stream(message: str | bytes, count: int) -> float:
    text = message if isinstance(message, str) else message.decode()
    async with draining_plane() as plane:
        argv = (sys.executable, "-m", "tests.bench.references.stream", plane.url, str(count + WINDOW), text)
        async with running(*argv) as process:
            await alive_until(plane.connected, process)
            return await plane.take(count)
