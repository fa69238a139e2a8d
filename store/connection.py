"""The one connection to the journal's file: how it is opened, and the one way in which it is used.

Part of `store`; imports `store.errors`.

Why a subclass of aiosqlite's connection: each call of aiosqlite is one hop to the connection's thread and
back, about 100 µs. A group commit of fifty units would pay a hop for each statement, and between two hops
another task's statement can land inside the open transaction. `run` hands a whole function to the thread
instead: one hop, and nothing can come between. It uses aiosqlite's protected `_execute`, which is what each
of its public methods is made of (as of 0.22).

Why the pragmas are read back: SQLite does not fail where it cannot do as told. A file system without shared
memory or locks silently leaves the journal in another mode, with other promises.
"""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast
from urllib.parse import quote

import aiosqlite

from store.errors import JournalBusy, SettingNotTaken

T = TypeVar("T")

SQLITE_VERSION: Final = sqlite3.sqlite_version
BUSY_TIMEOUT_S: Final = 2.0
"""How long an open waits for another program (a shell, a backup) to let go of the file."""
PAGE_BYTES: Final = 4_096
CACHED_STATEMENTS: Final = 256
"""More than all named queries together, so that none is compiled twice."""

_SET: Final[tuple[tuple[str, str, object], ...]] = (
    # EXCLUSIVE before WAL: then there is no -shm file, and no other process can ever open, checkpoint or
    # unlink ours
    ("locking_mode", "EXCLUSIVE", "exclusive"),
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("foreign_keys", "ON", 1),
    ("secure_delete", "ON", 1),
    # checkpoints are ours: SQLite's own swallow their errors
    ("wal_autocheckpoint", "0", 0),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("temp_store", "MEMORY", 2),
)
_FIXED_AT_CREATION: Final[tuple[tuple[str, str, object], ...]] = (
    ("page_size", str(PAGE_BYTES), PAGE_BYTES),
    ("auto_vacuum", "INCREMENTAL", 2),
)


class JournalConnection(aiosqlite.Connection):
    """aiosqlite's connection with one more method.

    It must be closed whatever happens: its thread is no daemon.
    """

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` in the connection's thread, and return what it returned, or raise what it raised.

        Cancelling the caller ends the wait only: the function runs to its end.
        """
        # aiosqlite leaves the method without types
        done = await self._execute(function, self._conn)  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
        return cast("T", done)

    async def abandon(self, after: Callable[[], None] = lambda: None) -> None:
        """Close without the checkpoint that a close would do, so that neither file is written or removed.

        For after a failure, and for files that are not ours to change. SQLite looks at its interrupt flag
        before it copies the first page of a checkpoint; the flag stands until the next statement, and there
        is none. Where there is no page to copy, SQLite removes the `-wal` all the same. `after` runs in the
        thread once the file is closed.
        """

        def leave(connection: sqlite3.Connection) -> None:
            connection.interrupt()
            connection.close()
            after()

        await self.run(leave)
        await self.close()


lossless_text: Final = partial(str, encoding="utf-8", errors="surrogateescape")
"""A column's text for whoever looks for damage. Bytes that are no UTF-8 become lone surrogates, which no text
of ours has; by itself, Python would raise in the middle of a page."""


def uri(path: Path, mode: str) -> str:
    """Return the SQLite URI of `path`.

    `mode` is `rw`, or `ro`, which never writes the file, nor its `-wal`.
    """
    return f"file:{quote(str(path))}?mode={mode}"


def connect(path: Path) -> JournalConnection:
    """Return the connection to an existing file, not yet open: `await` it. Statements commit themselves."""

    def connector() -> sqlite3.Connection:
        return sqlite3.connect(
            uri(path, "rw"),
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            cached_statements=CACHED_STATEMENTS,
        )

    return JournalConnection(connector, iter_chunk_size=64)


def prepare_new(connection: sqlite3.Connection) -> None:
    """Set what only an empty file takes."""
    for name, value, _ in _FIXED_AT_CREATION:
        connection.execute(f"PRAGMA {name} = {value}")


def configure(connection: sqlite3.Connection, path: Path) -> None:
    """Set every pragma and read it back.

    Raises `SettingNotTaken`, or `JournalBusy` where another program holds on.
    """
    try:
        for name, value, _ in _SET:
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
        verify_settings(connection, path)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise JournalBusy(path, pid=None, daemon=False) from error
        raise


def verify_settings(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `SettingNotTaken` for the first pragma that does not read back as it must."""
    for name, value, wanted in (*_SET, *_FIXED_AT_CREATION):
        found = connection.execute(f"PRAGMA {name}").fetchone()[0]
        if found != wanted:
            raise SettingNotTaken(path, name=name, wanted=value, found=found)
