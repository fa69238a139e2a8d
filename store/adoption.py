"""A backup in an empty state folder becomes its journal.

Part of `store`; imports its own modules. Blocks: runs in a worker thread, under the folder's lock.

A backup brings what its folder needs: `CURRENT` and the key are made from it, in this order: the key, then
`CURRENT`, then the backup's own table goes, with the connection that owns the journal from then on. Whatever
is cut off in between is done again by the next start. Nothing else may stand beside it: what is left of
another journal would be taken for its own.
"""

import sqlite3
from pathlib import Path
from typing import Final

from store.durable import write_durably
from store.errors import BackupNotAlone, IdentityMissing, JournalDamaged
from store.files import FIRST
from store.folder import check_file
from store.head import read_head, row_digest
from store.identity import Identity, write_identity
from store.inspection import looking
from store.keys import KEY, KEY_BYTES

_KEPT: Final = "SELECT digest_key, made_at, digest FROM restored WHERE one = 1"
_IS_BACKUP: Final = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'restored'"


def adopt(folder: Path, stray: IdentityMissing) -> Identity:
    """Make the one backup in the folder its journal, durable, and return its identity.

    Raises `stray` where what is there is no backup, `BackupNotAlone`, and what a look at a file raises.
    """
    path = folder / FIRST
    if not path.exists():
        raise stray
    check_file(path, path.lstat())
    with looking(path, alone=True) as connection:
        if connection.execute(_IS_BACKUP).fetchone() is None:
            raise stray
        file_id = read_head(connection).file_id
        key = _key(connection, path)
    if beside := _beside(folder, path, key):
        raise BackupNotAlone(path, beside)
    if key:
        write_durably(folder / KEY, key)
    identity = Identity(file_id=file_id, journal=path.name)
    write_identity(folder, identity)
    return identity


def _beside(folder: Path, path: Path, key: bytes) -> tuple[str, ...]:
    """Return what belongs to another journal. A start that was cut off may have written the key already."""
    found = {item.name for item in folder.glob("journal*") if item != path}
    if (folder / KEY).exists() and (folder / KEY).read_bytes() != key:
        found.add(KEY)
    return tuple(sorted(found))


def _key(connection: sqlite3.Connection, path: Path) -> bytes:
    row = connection.execute(_KEPT).fetchone()
    key, made_at, digest = (None, None, None) if row is None else row
    if (
        not isinstance(key, bytes)
        or row_digest(made_at, key.hex()) != digest
        or len(key) not in (0, KEY_BYTES)
    ):
        raise JournalDamaged(path, "what a backup brings with it does not match its digest")
    return key


def settle(connection: sqlite3.Connection) -> None:
    """Remove what only a backup has, once its folder has it. For the owner's connection."""
    connection.execute("DROP TABLE IF EXISTS restored")
