"""What holds commits up: each statement of the journal's thread timed, beside what each caller waited.

A probe takes the place of the journal's connection, in its own thread. Of each statement it notes how long it
took, how much of that was the thread's own processor time, and how long the thread was ready and had no
processor; what is left is the disk, or Python's lock, which the event loop's thread may have. So a slow disk,
a busy machine and our own work are told apart.
"""

import gc
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from store.connection import PAGE_BYTES
from store.files import wal
from store.journal import Journal
from store.statements import STATEMENTS
from store.view import View
from store.wal import Filling

_NAMES: Final = {sql: name for name, sql in STATEMENTS.items()}
_CHECKPOINT: Final = "PRAGMA wal_checkpoint"
_VACUUM: Final = "PRAGMA incremental_vacuum"
_REMOVES: Final = frozenset(
    name
    for name, sql in STATEMENTS.items()
    if name.startswith(("delete_", "erase")) and not sql.lstrip().upper().startswith("SELECT")
)


class Cost(NamedTuple):
    """What something took of the journal's thread, in seconds."""

    wall: float = 0.0
    cpu: float = 0.0
    starved: float = 0.0
    """Ready to run, and without a processor."""

    @property
    def elsewhere(self) -> float:
        """What is neither the thread's own work nor the machine's other work: the disk, or Python's lock."""
        return max(0.0, self.wall - self.cpu - self.starved)

    def plus(self, other: "Cost") -> "Cost":
        """Return both together."""
        return Cost(self.wall + other.wall, self.cpu + other.cpu, self.starved + other.starved)


NOTHING: Final = Cost()


@dataclass(slots=True, kw_only=True)
class Work:
    """One stretch of the journal's thread: a transaction, or a checkpoint."""

    began: float
    ended: float = 0.0
    total: Cost = NOTHING
    parts: dict[str, Cost] = field(default_factory=dict[str, Cost])
    """By kind of statement: `write`, `remove`, `vacuum`, `search`, `commit`, `checkpoint`; and `garbage`."""
    removes: bool = False
    """Whether something was pruned or erased."""
    frames: int = 0
    """Pages that a transaction wrote to the `-wal`, or that a checkpoint found there."""
    checkpoint: bool = False


class Probe:
    """Stands for the journal's connection, and notes what its statements cost."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection: Final = connection
        self._schedule: Final = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._filling: Final = Filling(wal(path), PAGE_BYTES)
        self._frames = 0
        self._open: Work | None = None
        self._since = self._collecting_since = self._now()
        self._thread: Final = threading.get_ident()
        gc.callbacks.append(self._collect)
        self.done: Final[list[Work]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the connection has
        return getattr(self._connection, name)

    def execute(self, sql: str, parameters: Any = ()) -> Any:  # noqa: ANN401 - as the connection's
        """Run a statement, and note what it cost."""
        if sql.startswith(_CHECKPOINT):
            return self._checkpoint(sql)
        if sql == "BEGIN IMMEDIATE":
            self._since = self._now()
            self._open = Work(began=self._since[0])
        return self._timed(sql, self._connection.execute, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any]) -> Any:  # noqa: ANN401 - as the connection's
        """Run a statement for many rows."""
        return self._timed(sql, self._connection.executemany, parameters)

    def _timed(self, sql: str, run: Callable[[str, Any], Any], parameters: Any) -> Any:  # noqa: ANN401
        before = self._now()
        cursor = run(sql, parameters)
        work = self._open
        if work is not None:
            kind = _kind(sql)
            self._add(work, kind, _between(before, self._now()))
            work.removes |= kind in {"remove", "vacuum"} and (kind == "vacuum" or cursor.rowcount > 0)
            if sql == "COMMIT":
                self._end(work)
        return cursor

    def _end(self, work: Work) -> None:
        now = self._now()
        work.ended, work.total = now[0], _between(self._since, now)
        before, self._frames = self._frames, self._filling.look()[0]
        work.frames = self._frames - before if self._frames >= before else self._frames
        self._open = None
        self.done.append(work)

    def _checkpoint(self, sql: str) -> "_Fetched":
        before = self._now()
        row = self._connection.execute(sql).fetchone()
        now = self._now()
        cost = _between(before, now)
        self.done.append(
            Work(
                began=before[0],
                ended=now[0],
                total=cost,
                parts={"checkpoint": cost},
                frames=row[1],
                checkpoint=True,
            )
        )
        self._frames = 0
        return _Fetched(row)

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.thread_time(), int(os.pread(self._schedule, 64, 0).split()[1]) / 1e9

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        """Python looks for garbage in whichever thread has made the last object."""
        if threading.get_ident() != self._thread or self._open is None:
            return
        if phase == "start":
            self._collecting_since = self._now()
        else:
            self._add(self._open, "garbage", _between(self._collecting_since, self._now()))

    def _add(self, work: Work, kind: str, cost: Cost) -> None:
        work.parts[kind] = work.parts.get(kind, NOTHING).plus(cost)

    def close(self) -> sqlite3.Connection:
        """Return the connection that it stood for."""
        gc.callbacks.remove(self._collect)
        os.close(self._schedule)
        self._filling.close()
        return self._connection


class _Fetched:
    """The one row of a pragma that was read already."""

    def __init__(self, row: tuple[int, int, int]) -> None:
        self._row: Final = row

    def fetchone(self) -> tuple[int, int, int]:
        return self._row


def _between(before: tuple[float, float, float], after: tuple[float, float, float]) -> Cost:
    return Cost(*(late - early for early, late in zip(before, after, strict=True)))


def _kind(sql: str) -> str:
    if sql == "COMMIT":
        return "commit"
    if sql.startswith(_VACUUM):
        return "vacuum"
    name = _NAMES.get(sql, "")
    if name in _REMOVES:
        return "remove"
    return "search" if sql.lstrip("-").upper().startswith("SELECT") else "write"


@asynccontextmanager
async def probed(journal: Journal, path: Path) -> AsyncGenerator[Probe]:
    """Note what the journal's thread does while the block lasts."""

    def begin(view: View) -> Probe:
        probe = Probe(view.ledger.connection, path)
        view.ledger.connection = cast("sqlite3.Connection", probe)
        return probe

    def end(view: View) -> None:
        view.ledger.connection = probe.close()

    probe = await journal.read(begin)
    try:
        yield probe
    finally:
        await journal.read(end)
