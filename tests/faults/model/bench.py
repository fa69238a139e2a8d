"""A real journal without a thread and without an event loop: each unit is one commit, done when it returns.

For machines that make thousands of journals. The file lies on a memory file system where there is one.
"""

import shutil
import sqlite3
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from store.connection import JournalConnection, connect
from store.opening import open_connection, opened_folder
from store.settings import JournalSettings
from store.transaction import Transaction
from store.verify import verify_file
from store.view import View
from store.writer import Done, Outcome

T = TypeVar("T")
BASE: Final = datetime(2030, 1, 1, tzinfo=UTC)


class _Prompt(JournalConnection):
    """A connection that does at once what it is asked."""

    raw: sqlite3.Connection

    def __await__(self) -> Generator[Any, None, "_Prompt"]:
        return self._now().__await__()

    async def _now(self) -> "_Prompt":
        self.raw = self._connector()
        return self

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return function(self.raw)

    async def close(self) -> None:
        self.raw.close()


def _connect(path: Path) -> _Prompt:
    return _Prompt(connect(path)._connector, iter_chunk_size=64)


@contextmanager
def prompt_connections() -> Generator[None]:
    """Let journals be opened without a thread while the block lasts."""
    opening: Any = import_module("store.opening")
    original = opening.connect
    opening.connect = _connect
    try:
        yield
    finally:
        opening.connect = original


def _finished(work: Coroutine[Any, Any, T]) -> T:
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("nothing here waits")


class Bench:
    """One journal, opened again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = JournalSettings(
            state_dir=folder / "state", runtime_dir=folder / "run", reserve_bytes=65_536
        )
        self.now_s = 0.0
        self._ids = count(1)
        self.open()

    def clock(self) -> datetime:
        """Return the time of this journal."""
        return BASE + timedelta(seconds=self.now_s)

    def open(self) -> None:
        """Open it, as a process does that starts."""
        self._entered = opened_folder(self.settings, new_id=self._id, now=self.clock)
        opened = self._entered.__enter__()
        work = open_connection(opened, self.settings, clock=self.clock, boundary=lambda _: None)
        connection, self._writer = _finished(work)
        assert isinstance(connection, _Prompt), "whoever uses this opens journals without a thread"
        self._raw = connection.raw

    def _id(self) -> str:
        return f"{next(self._ids):032x}"

    def transact(self, unit: Callable[[Transaction], T]) -> T:
        """Run a unit in a commit of its own; what it raises is raised."""
        self.now_s += 0.001
        (outcome,) = self._writer.commit([unit]).outcomes
        if self._writer.wants_checkpoint(crowded=False):
            self._writer.checkpoint()
        return cast("T", _value(outcome))

    def read(self, unit: Callable[[View], T]) -> T:
        """Run a unit that only reads."""
        (outcome,) = self._writer.read([unit])
        return cast("T", _value(outcome))

    def close(self) -> None:
        """End as a process does that is told to."""
        self._writer.finish()
        self._raw.close()
        self._entered.__exit__(None, None, None)

    def kill(self) -> None:
        """End as a process does that is killed: the files stay as they are."""
        state, left = self.settings.state_dir, self.folder / "left"
        shutil.copytree(state, left)
        with suppress(sqlite3.Error):
            self._raw.interrupt()
            self._raw.close()
        self._entered.__exit__(None, None, None)
        shutil.rmtree(state)
        left.rename(state)

    def findings(self) -> list[str]:
        """Return what is wrong with the closed journal, its projections made again from its events."""
        found = verify_file(self.settings, lambda _: None, now=self.clock(), deep=True)
        return [str(item) for item in found]


def _value(outcome: Outcome) -> object:
    if isinstance(outcome, Done):
        return outcome.value
    raise outcome.error
