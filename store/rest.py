"""A look at a journal that nobody has open: the same questions, of the file alone.

Part of `store`; imports its own modules. Blocks: call it in a worker thread, or where nothing else runs.

The questions are asked of the tables that this program knows. A journal that an earlier version left is
migrated by the next start, and not by a look: what is looked at then is a migrated copy, in a temporary file.
"""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from store.connection import lossless_text
from store.errors import ScratchFailed
from store.folder import entered
from store.head import Ledger, read_head
from store.identity import read_identity
from store.inspection import inspect, looking
from store.schema import VERSION, migrate, version
from store.settings import JournalSettings
from store.view import View

_NO_ROOM: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN})


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """Open the journal to read only, as the next start will have it. No file is changed.

    Raises what `looking` does; and `ScratchFailed` where an earlier version's is to be copied and there is no
    room for it.
    """
    with looking(path) as connection:
        if version(connection) == VERSION:
            yield connection
            return
        with closing(_migrated(connection)) as copy:
            yield copy


def _migrated(journal: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect("", isolation_level=None)
    try:
        journal.backup(copy)
        copy.text_factory = lossless_text
        migrate(copy)
    except sqlite3.OperationalError as error:
        copy.close()
        if error.sqlite_errorcode & 0xFF in _NO_ROOM:
            raise ScratchFailed(str(error)) from error
        raise
    except BaseException:
        copy.close()
        raise
    return copy


@contextmanager
def at_rest(settings: JournalSettings, *, now: datetime) -> Generator[View | None]:
    """Yield a view of the journal of a state folder that no daemon uses, under its lock; None: it has none.

    Nothing in the file is changed. Raises an `OpenRefused` for what is no journal of this folder, or is in
    use, and what `reading` does.
    """
    with entered(settings) as folder:
        identity = read_identity(folder.path)
        if identity is None or identity.journal is None:
            yield None
            return
        path = identity.path(folder.path)
        inspect(path, identity)
        with reading(path) as connection:
            yield View(Ledger(connection, read_head(connection), None), now, has_room=lambda: False)
