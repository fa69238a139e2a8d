"""How a journal comes into being. Part of `store`; imports its own modules. Blocks: runs in a worker thread.

The order makes every instant recoverable: `CURRENT` first says that a journal is being made, and under which
identity; then the file is made under another name, closed whole, and renamed; then `CURRENT` names it.
Whatever is cut off in between is made again by the next start, because nothing can have been recorded yet.
"""

import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

from store.connection import configure, prepare_new, uri
from store.durable import sync_folder
from store.errors import JournalFailed
from store.files import FIRST, wal
from store.head import new_head, write_head
from store.identity import Identity, write_identity
from store.records import JournalId, Timestamp
from store.schema import migrate


def create(
    folder: Path, *, new_id: Callable[[], str], created_at: Timestamp, file_id: str | None
) -> Identity:
    """Make the folder's first journal, and return its identity, durable.

    `file_id` is that of a creation that was cut off, if any. Raises OSError and sqlite3.Error.
    """
    making = Identity(file_id=file_id or new_id(), journal=None)
    write_identity(folder, making)
    fresh = folder / f"{FIRST}.new"
    for leftover in (fresh, wal(fresh), folder / FIRST):
        leftover.unlink(missing_ok=True)
    with new_file(fresh):
        pass
    with closing(sqlite3.connect(uri(fresh, "rw"), uri=True, isolation_level=None)) as connection:
        prepare_new(connection)
        configure(connection, fresh)
        migrate(connection)
        connection.execute("BEGIN IMMEDIATE")
        write_head(
            connection,
            new_head(file_id=making.file_id, journal_id=JournalId(new_id()), created_at=created_at),
        )
        connection.execute("COMMIT")
        # a close would checkpoint too, and keep its errors to itself
        if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() != (0, 0, 0):
            raise JournalFailed(
                during="its creation", detail="SQLite could not bring the new journal into one file"
            )
    wal(fresh).unlink(missing_ok=True)  # it is empty, and SQLite keeps to itself that it could not remove it
    fresh.rename(folder / FIRST)
    sync_folder(folder)
    made = Identity(file_id=making.file_id, journal=FIRST)
    write_identity(folder, made)
    return made


@contextmanager
def new_file(path: Path) -> Generator[int]:
    """Make an empty file, 0600, that was not there before, and hold it open.

    Its `-wal` will take its mode from it.

    This is the only time that a journal's file is opened other than by SQLite. Closing any descriptor of a
    file drops the locks that SQLite holds on it in this process; so the block must end when no connection is
    open.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
