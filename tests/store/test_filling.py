"""How many pages stand in a `-wal` that is in use: SQLite itself says so only when it copies them."""

import random
import sqlite3
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from store.connection import PAGE_BYTES
from store.wal import Filling


@pytest.fixture
def connection(tmp_path: Path) -> Generator[sqlite3.Connection]:
    """A file whose `-wal` nobody copies by himself."""
    with closing(sqlite3.connect(tmp_path / "file.db", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
        yield connection


def copied(connection: sqlite3.Connection, mode: str = "PASSIVE") -> int:
    """Copy the pages, and return how many there were."""
    _, pages, done = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    assert pages == done
    return int(pages)


def test_the_count_is_that_of_sqlite(connection: sqlite3.Connection, tmp_path: Path) -> None:
    """After any commits, and however often the file was begun anew or emptied."""
    draw = random.Random(5)
    filling = Filling(tmp_path / "file.db-wal", PAGE_BYTES)
    for _ in range(40):
        for _ in range(draw.randrange(1, 9)):
            size = draw.choice((10, 3_000, 90_000, 400_000))
            connection.execute("INSERT INTO t (b) VALUES (zeroblob(?))", (size,))
            if draw.random() < 0.5:
                filling.look()
        frames, size, pages = filling.look()
        assert pages == connection.execute("PRAGMA page_count").fetchone()[0]
        assert size == (tmp_path / "file.db-wal").stat().st_size
        if draw.random() < 0.2:
            copied(connection, "TRUNCATE")
            assert filling.look() == (0, 0, 0)
        else:
            assert copied(connection) == frames


def test_a_transaction_that_was_undone_counts_at_most_until_the_next_one(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """Its pages may have spilled into the `-wal`: what is written next takes their place."""
    filling = Filling(tmp_path / "file.db-wal", PAGE_BYTES)
    connection.execute("PRAGMA cache_size = 10")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t (b) VALUES (zeroblob(900000))")
    connection.execute("ROLLBACK")
    assert filling.look()[0] > 100
    copied(connection)
    connection.execute("INSERT INTO t (b) VALUES (zeroblob(10))")
    assert filling.look()[0] == copied(connection)


def test_its_descriptor_ends_with_it(connection: sqlite3.Connection, tmp_path: Path) -> None:
    """Closed, or forgotten by whoever had no time to; and one look needs no more than another."""
    connection.execute("INSERT INTO t (b) VALUES (zeroblob(10))")
    wal = tmp_path / "file.db-wal"
    at_first = descriptors(wal)
    for close in (True, False):
        filling = Filling(wal, PAGE_BYTES)
        for _ in range(3):
            filling.look()
            assert descriptors(wal) == at_first + 1
        if close:
            filling.close()
        del filling
        assert descriptors(wal) == at_first


def descriptors(path: Path) -> int:
    """How many this process has of a file."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the list itself, and what others close meanwhile
            found += each.readlink() == path
    return found
