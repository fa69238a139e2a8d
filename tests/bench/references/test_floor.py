"""The journal's floor is a fair one: what it writes is what the journal wrote, to the last row."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import anyio

from tests.bench.references.floor import TABLES, measure_floor, rows_of

OPERATIONS: Final = 130


def content(file: Path, table: str) -> list[tuple[object, ...]]:
    """All rows of a table, in order."""
    with closing(sqlite3.connect(file)) as connection:
        return sorted(connection.execute(f"SELECT * FROM {table}"), key=repr)


def test_the_floor_writes_the_same_rows_as_the_journal(tmp_path: Path) -> None:
    """In groups that do not come out even, too: every table ends as the journal's own."""
    rows = anyio.run(rows_of, tmp_path / "rows", OPERATIONS)
    assert measure_floor(tmp_path / "floor", rows, 64, OPERATIONS) > 0
    for table in TABLES:
        wanted = content(tmp_path / "rows" / "state" / "journal.db", table)
        assert content(tmp_path / "floor" / "floor.db", table) == wanted, table


def test_no_table_that_the_journal_writes_is_left_out(tmp_path: Path) -> None:
    """What an operation leaves in a table that the floor does not know would make the floor too fast."""
    anyio.run(rows_of, tmp_path / "rows", 64)
    file = tmp_path / "rows" / "state" / "journal.db"
    with closing(sqlite3.connect(file)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    assert {table for table in tables if len(content(file, table)) >= 64} <= set(TABLES)
