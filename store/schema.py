"""The journal's schema: numbered migrations, and the version that this program knows.

Part of `store`; imports `store.cutting`. Each file in `store/migrations/` is `NNNN_name.sql`, with its own
`BEGIN IMMEDIATE … PRAGMA user_version … COMMIT`, because `executescript` commits whatever is open before it
starts: a migration that fails or is killed leaves the version before it. `schema.sql` is what all of them
together make. Where content is to be changed row by row, a function does that before its script runs
(`BEFORE`): in transactions of its own, and to be begun again wherever it was interrupted.
"""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.resources import files
from typing import Final

from store.cutting import cut_long

APPLICATION_ID: Final = 0x65666664
"""`effd`: stands in the file's header, and tells our file from any other SQLite database."""


def _migrations() -> tuple[tuple[int, str], ...]:
    found = [
        (int(file.name.partition("_")[0]), file.read_text(encoding="utf-8"))
        for file in (files("store") / "migrations").iterdir()
        if file.name.endswith(".sql")
    ]
    return tuple(sorted(found))


MIGRATIONS: Final = _migrations()
FIRST: Final = MIGRATIONS[0][0]
VERSION: Final = MIGRATIONS[-1][0]
BEFORE: Final[Mapping[int, Callable[[sqlite3.Connection], None]]] = {8: cut_long}
EXPECTED: Final = (files("store") / "schema.sql").read_text(encoding="utf-8")
"""What `describe` returns for a journal of this version."""


def version(connection: sqlite3.Connection) -> int:
    """Return the schema version of the file; 0 for one without a schema."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to `VERSION`, each step in transactions of its own.

    Raises sqlite3.Error, rolled back.
    """
    present = version(connection)
    for number, script in MIGRATIONS:
        if number <= present:
            continue
        try:
            if number in BEFORE:
                BEFORE[number](connection)
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def missing(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the names of the tables and views of `VERSION` that the file has not, or has otherwise."""
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")}
    return tuple(
        sql.split(maxsplit=3)[2]
        for sql in EXPECTED.split(";\n\n")
        if sql.startswith(("CREATE TABLE", "CREATE VIEW")) and sql not in found
    )


def names(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Return the kind, the name and the table of everything in the schema, as SQLite lists them."""
    return frozenset(connection.execute("SELECT type, name, tbl_name FROM sqlite_schema"))


def expected_names() -> frozenset[tuple[str, str, str]]:
    """Return what `names` returns for a journal of this version."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(EXPECTED)
        return names(connection)


def describe(connection: sqlite3.Connection) -> str:
    """Return the schema of the file as SQL text, one statement after another, sorted by name."""
    rows = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type = 'view', type = 'index', rowid"
    )
    return "".join(f"{sql};\n\n" for (sql,) in rows)
