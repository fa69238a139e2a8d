"""The thread that owns the journal's connection, and all others, without a thread: work takes virtual time.

A job is done for real either when it is handed in, or when its time is over, as the seed says. A process that
is killed in between has done it, or has not: so a commit may be on the disk though nobody heard of it.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio import CancelScope

from store.connection import JournalConnection, connect
from tests.faults.simulation.loop import PROCESS, Process

T = TypeVar("T")


class Disk:
    """How long the disk of one world takes. All in seconds."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.usual_s = rng.choice((0.0005, 0.002, 0.02))
        self.stall_s = rng.choice((0.0, 0.0, 0.5, 8.0, 40.0))
        self.stalls = 0

    def takes_s(self) -> float:
        """Return how long the next job takes."""
        if self.stall_s and self._rng.random() < 0.02:
            self.stalls += 1
            return self._rng.uniform(0.2, 1.0) * self.stall_s
        return self._rng.uniform(0.2, 2.0) * self.usual_s

    async def do(self, job: Callable[[], T]) -> T:
        """Do a job in a thread that is none."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        takes_s = self.takes_s()
        if self._rng.random() < 0.5:
            outcome = _attempt(job)
            loop.call_later(takes_s, _tell, done, outcome)
        else:
            loop.call_later(takes_s, lambda: _tell(done, _attempt(job)))
        return await done


def _attempt(job: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return job(), None
    except BaseException as error:  # noqa: BLE001 - whoever waits is told
        return None, error


def _tell(done: "asyncio.Future[Any]", outcome: tuple[Any, BaseException | None]) -> None:
    if done.done():
        return
    value, error = outcome
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)


class Connection(JournalConnection):
    """The journal's connection, whose thread is the disk of its process."""

    raw: sqlite3.Connection

    def __await__(self) -> Generator[Any, None, "Connection"]:
        return self._open().__await__()

    async def _open(self) -> "Connection":
        process = living()
        self.raw = await process.disk.do(self._connector)
        process.connections.append(self.raw)
        return self

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await living().disk.do(lambda: function(self.raw))

    async def close(self) -> None:
        await living().disk.do(self.raw.close)


class Machine(Process):
    """A process with a disk."""

    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name)
        self.disk = disk
        self.connections: list[sqlite3.Connection] = []


def living() -> Machine:
    """Return the process that runs now."""
    process = PROCESS.get()
    assert isinstance(process, Machine), "threads belong to a process"
    return process


def _connect(path: Path) -> Connection:
    made = connect(path)
    return Connection(made._connector, iter_chunk_size=64)


async def _run_sync(function: Callable[..., T], *args: object, abandon_on_cancel: bool = False) -> T:
    with CancelScope(shield=not abandon_on_cancel):
        return await living().disk.do(partial(function, *args))
    raise AssertionError


def replace_threads() -> None:
    """Let no thread be started in this process from now on."""
    opening: Any = import_module("store.opening")
    opening.connect = _connect
    threads: Any = anyio.to_thread
    threads.run_sync = _run_sync
