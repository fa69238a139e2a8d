"""Duty: lose nothing that was acknowledged. The plane's one SQLite file, and whole transactions on it.

Part of `driver.plane`; imports the standard library, anyio and the plane's errors. Every change of the plane
is one call of `Ledger.change`: a function of the connection that runs to its end in a worker thread, inside
one transaction, and is on the disk (`synchronous=FULL`) when the call returns. A caller that is cancelled
still waits for it. What the functions are stands beside the duty that they serve: `intake`, `delivery`,
`views`.
"""

import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread

from driver.plane.errors import LedgerUnavailable

APPLICATION_ID: Final = 0x65667064
"""`efpd`, in the file's header: tells our file from any other SQLite file."""
SCHEMA_VERSION: Final = 1

_CHOOSE: Final = "choose another file with --db"

T = TypeVar("T")


def now() -> str:
    """Return the present moment, as all times of the plane are written."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Ledger:
    """The plane's file. Made by `open_ledger`; its owner must close it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._one_at_a_time = CapacityLimiter(1)
        self.failure: sqlite3.Error | None = None
        self.failed = anyio.Event()
        """Set, with `failure`, when the file itself failed: the plane must stop."""

    async def change(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` in one transaction and return its result, durable. Raising undoes it."""
        return await self._run(partial(self._transact, function))

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function`, which only reads, and return its result."""
        return await self._run(partial(function, self._connection))

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await to_thread.run_sync(step, limiter=self._one_at_a_time)
        except sqlite3.Error as error:
            # other subclasses are bugs of ours, and leave the file as it was
            if isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError:
                self.failure = error
                self.failed.set()
            raise

    def _transact(self, function: Callable[[sqlite3.Connection], T]) -> T:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = function(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def open_ledger(path: Path) -> Ledger:
    """Open the file, or make it (0600, in a folder that exists). Raises `LedgerUnavailable`."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
    except OSError as error:
        raise LedgerUnavailable(path, f"{error.strerror}; {_CHOOSE}") from error
    connection.row_factory = sqlite3.Row
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise LedgerUnavailable(path, _why(error)) from error
    except LedgerUnavailable:
        connection.close()
        raise
    return Ledger(connection)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Look whose file it is before anything in it is changed; then make it durable, and ours."""
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    empty = connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None
    if (found, version) != ((0, 0) if empty else (APPLICATION_ID, SCHEMA_VERSION)):
        raise LedgerUnavailable(path, f"this is no file of this version of the plane; {_CHOOSE}")
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    connection.execute("PRAGMA synchronous=FULL")
    if (mode, connection.execute("PRAGMA synchronous").fetchone()[0]) != ("wal", 2):
        raise LedgerUnavailable(path, f"this file system cannot hold a durable SQLite file; {_CHOOSE}")
    if empty:
        schema = files("driver.plane").joinpath("schema.sql").read_text(encoding="utf-8")
        header = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};"
        connection.executescript(f"BEGIN IMMEDIATE; {schema} {header} COMMIT;")


def _why(error: sqlite3.Error) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return "another plane is using this file; stop it, or choose another file with --db"
    return f"{error}; {_CHOOSE}"
