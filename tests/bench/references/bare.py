"""Reference (c), the floor from end to end: a driver without contracts, chain, views or logs.

A command comes over the WebSocket, its intent is committed, nothing is done, its outcome is committed, the
outcome goes over the WebSocket. Whatever waits when a commit ends goes into the next one. It is built of the
libraries that effectd is built of, and speaks as much of effectd.v1 as the bench's plane listens to.

Run as `python -m tests.bench.references.bare FOLDER URL`.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.bench.plane import SUBPROTOCOL

Record = tuple[str, str, bytes]
"""The command's id, the event's kind, and its content."""


def open_log(path: Path) -> sqlite3.Connection:
    """Return a new file with one table."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, command_id TEXT, kind TEXT, body BLOB)")
    return connection


def append(log: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Commit the records together."""
    log.execute("BEGIN IMMEDIATE")
    log.executemany("INSERT INTO log (command_id, kind, body) VALUES (?, ?, ?)", records)
    log.execute("COMMIT")


@dataclass(slots=True)
class BareDriver:
    """One connection, one file."""

    socket: ClientConnection
    log: sqlite3.Connection
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _seqs: "count[int]" = field(default_factory=lambda: count(1))
    _waiting: list[tuple[Record, Callable[[str], str | None]]] = field(default_factory=list[Any])
    _wake: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> None:
        """Work until the plane goes."""
        await self.socket.send(json.dumps({"type": "hello", "acked_seq": 0}))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._commit)
            with suppress(ConnectionClosed):
                async for frame in self.socket:
                    self._hear(json.loads(frame))
            tasks.cancel_scope.cancel()

    def _hear(self, frame: dict[str, Any]) -> None:
        if frame["type"] != "command":
            return
        body = json.dumps(frame["data"]).encode()
        self._waiting.append(((frame["command_id"], "operation.started", body), self._dispatch))
        self._wake.set()

    def _dispatch(self, command_id: str) -> None:
        """Do nothing, and let its outcome wait for the next commit."""
        body = json.dumps({"content": [{"type": "text", "text": "done"}]}).encode()
        self._waiting.append(((command_id, "operation.succeeded", body), self._receipt))
        self._wake.set()

    def _receipt(self, command_id: str) -> str:
        return json.dumps(
            {
                "type": "event",
                "seq": next(self._seqs),
                "kind": "operation.succeeded",
                "terminal": True,
                "command_id": command_id,
                "data": {"result": {"content": [{"type": "text", "text": "done"}]}},
            }
        )

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            taken, self._waiting = self._waiting, []
            await loop.run_in_executor(self.thread, append, self.log, [record for record, _ in taken])
            for (command_id, _, _), then in taken:
                if (receipt := then(command_id)) is not None:
                    await self.socket.send(receipt)


async def _main(folder: Path, url: str) -> None:
    async with connect(url, subprotocols=[SUBPROTOCOL], compression=None, proxy=None) as socket:
        await BareDriver(socket, open_log(folder / "bare.db")).run()


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]), sys.argv[2])
