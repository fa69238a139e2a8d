"""Reference (b), the journal's floor: a group commit of the same rows over plain sqlite3, in one thread.

The rows are the journal's own. A real journal is made once, and looked at twice: when all intents are
recorded, and when all outcomes are. What stands there is what the floor writes, into the same tables with the
same indexes and pragmas: for each group of operations one commit of the first state, one of the second, each
table with one `executemany`, and the journal's head with each. It computes nothing: no JSON, no hash, no
lookup, no caller who waits.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

import store.schema as schema  # noqa: PLR0402 - for pyright, `store` alone would be the folder of its tests
from store.connection import configure, prepare_new
from store.writer import CHECKPOINT_PAGES
from tests.bench.subjects.journal import record
from tests.store import large

TABLES: Final = ("runs", "commands", "operations", "attempts", "payloads", "events", "evidence", "journal")

Row = tuple[object, ...]
Tables = dict[str, dict[Row, Row]]


@dataclass(frozen=True, slots=True)
class Write:
    """What one table gets from all operations in one of the two states, in order."""

    sql: str
    rows: Sequence[Row]
    shared: bool
    """Whether operations share rows of this table, which each group then writes again."""

    def part(self, first: int, count: int, operations: int) -> Sequence[Row]:
        """Return the rows of `count` operations."""
        if self.shared:
            return self.rows[:count]
        each = len(self.rows) // operations
        return self.rows[first * each : (first + count) * each]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a number of operations. Made by `rows_of`."""

    operations: int
    fixed: Sequence[Write]
    """What is there before the first of them."""
    intents: Sequence[Write]
    outcomes: Sequence[Write]


async def rows_of(folder: Path, operations: int) -> Rows:
    """Make a journal of so many operations in `folder`, and return its rows."""
    found: list[Tables] = []
    for half in record(operations):
        async with large.opened(folder) as journal:
            for unit in half:
                await journal.transact(unit)
        found.append(await to_thread.run_sync(_tables, folder))
    names = await to_thread.run_sync(_columns, folder)
    intents, outcomes = found
    runs, head = intents["runs"], outcomes["journal"]
    return Rows(
        operations=operations,
        fixed=[_insert("runs", names, runs), _insert("journal", names, head)],
        intents=[
            _update("runs", names, outcomes["runs"], shared=True),
            *(_insert(table, names, intents[table]) for table in TABLES[1:-1] if intents[table]),
            _update("journal", names, head, shared=True),
        ],
        outcomes=[
            _update("runs", names, outcomes["runs"], shared=True),
            *_changes(names, intents, outcomes),
            _update("journal", names, head, shared=True),
        ],
    )


def measure_floor(folder: Path, rows: Rows, group: int, operations: int) -> float:
    """Write so many operations into a new file, `group` with each commit; return operations a second."""
    folder.mkdir()
    path = folder / "floor.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _prepare(connection, path, rows)
        began = time.perf_counter()
        for first in range(0, operations, group):
            for writes in (rows.intents, rows.outcomes):
                _commit(connection, writes, first, group, rows.operations)
        return operations / (time.perf_counter() - began)


def _prepare(connection: sqlite3.Connection, path: Path, rows: Rows) -> None:
    prepare_new(connection)
    configure(connection, path)
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchone()
    schema.migrate(connection)
    connection.execute("BEGIN IMMEDIATE")
    for write in rows.fixed:
        connection.executemany(write.sql, write.rows)
    connection.execute("COMMIT")


def _commit(
    connection: sqlite3.Connection, writes: Sequence[Write], first: int, count: int, operations: int
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for write in writes:
        connection.executemany(write.sql, write.part(first, count, operations))
    connection.execute("COMMIT")


def _tables(folder: Path) -> Tables:
    with closing(sqlite3.connect(folder / "state" / "journal.db")) as connection:
        found: Tables = {}
        for table in TABLES:
            keys = _keys(connection, table)
            rows = connection.execute(f"SELECT {', '.join(keys)}, * FROM {table} ORDER BY {', '.join(keys)}")
            found[table] = {row[: len(keys)]: row[len(keys) :] for row in rows}
        return found


def _columns(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    with closing(sqlite3.connect(folder / "state" / "journal.db")) as connection:
        return {
            table: (
                [row[1] for row in connection.execute(f"PRAGMA table_info({table})")],
                _keys(connection, table),
            )
            for table in TABLES
        }


def _keys(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]


def _insert(table: str, names: dict[str, tuple[list[str], list[str]]], rows: dict[Row, Row]) -> Write:
    columns, _ = names[table]
    marks = ", ".join("?" * len(columns))
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    return Write(sql, list(rows.values()), shared=False)


def _update(
    table: str,
    names: dict[str, tuple[list[str], list[str]]],
    rows: dict[Row, Row],
    changed: Sequence[int] | None = None,
    *,
    shared: bool = False,
) -> Write:
    columns, keys = names[table]
    chosen = [index for index, name in enumerate(columns) if name not in keys] if changed is None else changed
    sets = ", ".join(f"{columns[index]} = ?" for index in chosen)
    sql = f"UPDATE {table} SET {sets} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"
    return Write(sql, [(*(row[i] for i in chosen), *key) for key, row in rows.items()], shared=shared)


def _changes(names: dict[str, tuple[list[str], list[str]]], before: Tables, after: Tables) -> Iterator[Write]:
    """Yield what the outcomes change, and add."""
    for table in TABLES[1:-1]:
        new = {key: row for key, row in after[table].items() if key not in before[table]}
        moved = {key: row for key, row in after[table].items() if before[table].get(key, row) != row}
        if moved:
            key, row = next(iter(moved.items()))
            changed = [i for i, value in enumerate(row) if value != before[table][key][i]]
            yield _update(table, names, moved, changed)
        if new:
            yield _insert(table, names, new)
