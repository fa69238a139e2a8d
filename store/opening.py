"""How the journal is opened: the folder, the file's identity, a look at the file, the connection.

Part of `store`; imports its own modules. `opened_folder` blocks, and runs in a worker thread.
"""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from store import files, generation
from store.adoption import adopt, settle
from store.batches import Batches
from store.connection import JournalConnection, configure, connect
from store.creation import create
from store.durable import unlink_durably
from store.errors import FolderUnusable, IdentityMissing, JournalDamaged
from store.folder import Folder, entered
from store.head import read_head
from store.identity import Identity, read_identity
from store.inspection import inspect
from store.keys import DigestKey, find_key, make_key
from store.records import timestamp
from store.schema import migrate
from store.settings import JournalSettings
from store.writer import Writer, failure

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A state folder that is ours, and the journal in it, looked at and found good."""

    folder: Folder
    path: Path
    key: DigestKey
    rotated: bool
    """True where the journal was copied into a new generation, because an fsync of the old one had failed."""


@contextmanager
def opened_folder(
    settings: JournalSettings, *, new_id: Callable[[], str], now: Callable[[], datetime]
) -> Generator[Opened]:
    """Lock the state folder and find its journal, or make it.

    Raises an `OpenRefused` or `NoRoomForGeneration`.
    """
    with entered(settings) as folder:
        try:
            opened = _found(folder, settings, new_id=new_id, now=now)
        except OSError as error:
            raise FolderUnusable(folder.path, error) from error
        yield opened


def _found(
    folder: Folder, settings: JournalSettings, *, new_id: Callable[[], str], now: Callable[[], datetime]
) -> Opened:
    identity = _identity(folder, new_id=new_id, now=now)
    head = inspect(identity.path(folder.path), identity)
    key = find_key(folder.path, head.key_check) or make_key(folder.path)
    generation.remove_unfinished(folder.path, identity)
    rotated = generation.is_due(settings.runtime_dir, identity)
    if rotated:
        identity = generation.rotate(folder.path, settings.runtime_dir, identity)
        inspect(identity.path(folder.path), identity)
    else:
        generation.remove_older(folder.path, identity)
    return Opened(folder=folder, path=identity.path(folder.path), key=key, rotated=rotated)


def _identity(folder: Folder, *, new_id: Callable[[], str], now: Callable[[], datetime]) -> Identity:
    try:
        identity = read_identity(folder.path)
    except IdentityMissing as stray:
        return adopt(folder.path, stray)
    if identity is not None and identity.journal is not None:
        return identity
    unfinished = None if identity is None else identity.file_id
    try:
        return create(folder.path, new_id=new_id, created_at=timestamp(now()), file_id=unfinished)
    except sqlite3.Error as error:
        raise failure(error, "its creation") from error


async def open_connection(
    opened: Opened,
    settings: JournalSettings,
    *,
    clock: Callable[[], datetime],
    boundary: Callable[[str], None],
) -> tuple[JournalConnection, Writer]:
    """Open the one connection, and return it with its user. Raises an `OpenRefused` or `JournalFailed`."""
    connection = connect(opened.path)

    def begin(raw: sqlite3.Connection) -> Writer:
        configure(raw, opened.path)
        # the lock is ours alone now: a `-shm` is that of another program, which is gone
        files.shm(opened.path).unlink(missing_ok=True)
        migrate(raw)
        settle(raw)
        ledger = Batches(raw, read_head(raw), opened.key)
        writer = Writer(ledger, opened.path, settings, clock=clock, boundary=boundary)
        # what an earlier life left in the -wal goes into the file, and the -wal begins anew under other salts
        writer.checkpoint()
        return writer

    try:
        await connection
    except sqlite3.Error as error:
        raise failure(error, "opening") from error
    try:
        return connection, await connection.run(begin)
    except sqlite3.Error as error:
        await connection.abandon(partial(_unmark, opened.path))
        if error.sqlite_errorcode & 0xFF in _DAMAGE:
            raise JournalDamaged(opened.path, str(error)) from error
        raise failure(error, "opening") from error
    except OSError as error:
        await connection.abandon(partial(_unmark, opened.path))
        raise FolderUnusable(opened.folder.path, error) from error
    except BaseException:
        await connection.abandon(partial(_unmark, opened.path))
        raise


def _unmark(path: Path) -> None:
    """Remove the mark of a `-wal` that SQLite has removed at the close, as the file had all of its pages.

    Else the next start would call that a loss.
    """
    with suppress(OSError):
        if not files.wal(path).exists():
            unlink_durably(files.unclean_mark(path))
