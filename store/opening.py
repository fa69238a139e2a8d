"""How the journal is opened: the folder, the file's identity, the connection, and a first look at its content.

Part of `store`; imports its own modules. `opened_folder` blocks, and runs in a worker thread.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from store.connection import JournalConnection, configure, connect
from store.creation import create
from store.errors import FolderUnusable, JournalFailed
from store.folder import Folder, entered
from store.head import Ledger, read_head
from store.identity import Identity, read_identity
from store.inspection import check_tail, inspect
from store.records import timestamp
from store.schema import migrate
from store.settings import JournalSettings
from store.writer import Writer, failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A state folder that is ours, and the journal in it, looked at and found good."""

    folder: Folder
    identity: Identity
    path: Path


@contextmanager
def opened_folder(
    settings: JournalSettings, *, new_id: Callable[[], str], now: Callable[[], datetime]
) -> Iterator[Opened]:
    """Lock the state folder and find its journal, or make it. Raises an `OpenRefused` or `NoRoomForGeneration`."""
    with entered(settings) as folder:
        try:
            identity = _identity(folder, new_id=new_id, now=now)
            assert identity.journal is not None
            path = folder.path / identity.journal
            inspect(path, identity)
        except OSError as error:
            raise FolderUnusable(folder.path, error) from error
        yield Opened(folder=folder, identity=identity, path=path)


def _identity(folder: Folder, *, new_id: Callable[[], str], now: Callable[[], datetime]) -> Identity:
    identity = read_identity(folder.path)
    if identity is not None and identity.journal is not None:
        return identity
    unfinished = None if identity is None else identity.file_id
    return create(folder.path, new_id=new_id, created_at=timestamp(now()), file_id=unfinished)


async def open_connection(
    opened: Opened,
    settings: JournalSettings,
    *,
    clock: Callable[[], datetime],
    boundary: Callable[[str], None],
) -> tuple[JournalConnection, Writer]:
    """Open the one connection, and return it with its user. Raises an `OpenRefused`, `JournalFailed`."""
    connection = connect(opened.path)

    def begin(raw: sqlite3.Connection) -> Writer:
        configure(raw, opened.path)
        migrate(raw)
        ledger = Ledger(raw, read_head(raw))
        check_tail(raw, ledger.head, opened.path)
        return Writer(ledger, opened.path, settings, clock=clock, boundary=boundary)

    await connection
    try:
        return connection, await connection.run(begin)
    except sqlite3.Error as error:
        await connection.abandon()
        raise failure(error, "opening") from error
    except BaseException:
        await connection.abandon()
        raise
