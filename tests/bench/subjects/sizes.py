"""What a call, and what is left of it after its retention, takes on the disk."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from anyio import to_thread

from store.journal import open_journal
from store.retention import Retention, RetentionSettings
from tests.store import large
from tests.store.bulk import fill_up

OPERATIONS: Final = 5_000
LATER: Final = datetime(2032, 1, 1, tzinfo=UTC)
"""After everything in a journal that was filled up."""


async def measure_sizes(folder: Path, of_calls: Path) -> Mapping[str, float]:
    """Return bytes of the journal for each call, from a daemon's state folder, and for each tombstone.

    What an empty journal takes does not count, nor do free pages.
    """
    async with large.opened(folder):
        pass
    file = folder / "state" / "journal.db"
    empty = _used(file)
    await to_thread.run_sync(fill_up, file, OPERATIONS)
    await _prune(folder)
    daemons = of_calls / "state" / "journal.db"
    return {
        "bytes.call": (_used(daemons) - empty) / _count(daemons, "operations"),
        "bytes.tombstone": (_used(file) - empty) / _count(file, "tombstones"),
    }


async def _prune(folder: Path) -> None:
    settings = large.settings_in(folder)
    retention = Retention(RetentionSettings(retention=timedelta(days=1)))
    async with open_journal(settings, clock=lambda: LATER, new_id=lambda: uuid4().hex) as journal:
        while not (await journal.transact(retention.step)).finished:
            pass


def _used(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _count(file: Path, table: str) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
