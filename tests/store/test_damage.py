"""Whatever is wrong with a journal's file is found, or the file is refused: nothing ends in an exception."""

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

import store.schema as schema  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.errors import JournalDamaged, OpenRefused, StoreError
from store.findings import Finding
from store.settings import JournalSettings
from store.verify import verify_file, verify_journal
from tests.store.conftest import Open

NOW = datetime(2030, 1, 1, tzinfo=UTC)

GARBAGE: dict[str, tuple[str, ...]] = {
    "TEXT": ("''", "'x'", "CAST(x'ff41' AS TEXT)", "CAST(x'00' AS TEXT)", "'\u2603'", "NULL"),
    "INTEGER": ("-1", "0", "1", "9223372036854775807", "NULL"),
    "REAL": ("-1.5", "9e999", "NULL"),
    "BLOB": ("x''", "x'00'", "x'ff'", "CAST('[]' AS BLOB)", "CAST('{\"data\":[]}' AS BLOB)", "NULL"),
}
UNSEEN = {
    ("deliveries", "id"): "it only orders them",
    ("histories", "id"): "it only orders them",
    ("observations", "id"): "it only numbers them",
    ("pieces", "id"): "it only numbers them",
    ("shreds", "secret"): "it only says how soon copies go; what is left is found by its pieces",
    ("tombstones", "id"): "it only orders them",
}


def columns() -> Iterator[tuple[str, str, str]]:
    """Table, column and type of everything that a journal keeps."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection)
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        for (table,) in tables.fetchall():
            for row in connection.execute(f"PRAGMA table_info('{table}')").fetchall():
                yield table, row[1], row[2]


def spoil(path: Path, table: str, column: str, value: str) -> bool:
    """Put `value` into one row of the table; False where the schema, or the row itself, does not take it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.text_factory = bytes
        connection.execute("PRAGMA ignore_check_constraints = ON")
        found = connection.execute(
            f"SELECT * FROM {table} ORDER BY {column} IS NULL, {column} IS ({value}) LIMIT 1"
        )
        names, row = [item[0] for item in found.description], found.fetchone()
        key = " AND ".join(f"CAST({name} AS BLOB) IS CAST(? AS BLOB)" for name in names)
        try:
            done = connection.execute(
                f"UPDATE {table} SET {column} = {value} WHERE {column} IS NOT ({value}) AND {key}", row
            )
        except sqlite3.IntegrityError:
            return False
        return done.rowcount == 1


def look(settings: JournalSettings) -> tuple[Finding, ...] | OpenRefused:
    """What is found, or the refusal to look."""
    try:
        return verify_file(settings, lambda _: None, now=NOW, deep=True)
    except OpenRefused as refusal:
        return refusal


@pytest.mark.parametrize(("table", "column", "type_"), tuple(columns()))
def test_garbage_in_any_column_is_found_or_refused(
    settings: JournalSettings, template: Path, journal_file: Path, table: str, column: str, type_: str
) -> None:
    """A value that the schema takes is damage all the same, and no reader trips over it."""
    tried = 0
    for value in GARBAGE[type_]:
        shutil.copyfile(template / journal_file.name, journal_file)
        if not spoil(journal_file, table, column, value):
            continue
        tried += 1
        found = look(settings)
        assert isinstance(found, OpenRefused) or found or (table, column) in UNSEEN, f"{column} = {value}"
        str(found).encode()  # and it can be printed
    assert tried, "some garbage must have been taken"


def test_a_look_at_garbage_leaves_no_database_open(
    settings: JournalSettings, template: Path, journal_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the projections cannot even be begun, neither is the one open in which they would be made."""
    made: list[sqlite3.Connection] = []

    class Kept(sqlite3.Connection):
        def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as sqlite3 has it
            super().__init__(*args, **options)
            made.append(self)

    assert spoil(journal_file, "traces", "resumes", "'x'")
    monkeypatch.setattr("store.rebuild.sqlite3.connect", partial(sqlite3.connect, factory=Kept))
    assert look(settings)
    assert [connection for connection in made if is_open(connection)] == []
    assert made


def is_open(connection: sqlite3.Connection) -> bool:
    """Whether statements can still be run."""
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True


@pytest.mark.parametrize("sql", ["PRAGMA user_version = 0", "PRAGMA user_version = 99"])
def test_a_schema_of_no_known_version_is_refused(
    settings: JournalSettings, journal_file: Path, sql: str
) -> None:
    """It is no journal of this program, whatever its tables look like."""
    with closing(sqlite3.connect(journal_file)) as connection:
        connection.execute(sql)
    with pytest.raises(OpenRefused, match="schema"):
        verify_file(settings, lambda _: None, now=NOW)


@pytest.mark.anyio
async def test_a_running_journal_survives_the_look_at_garbage(
    opened: Open, settings: JournalSettings, template: Path, journal_file: Path
) -> None:
    """Text that is no text, and JSON that is none, are findings, and end no daemon."""

    def garble() -> None:
        assert spoil(journal_file, "operations", "tool", "CAST(x'ff41' AS TEXT)")
        assert spoil(journal_file, "deliveries", "answer", "CAST(x'ff41' AS TEXT)")
        assert spoil(journal_file, "events", "kind", "CAST(x'ff41' AS TEXT)")
        assert spoil(journal_file, "payloads", "redact", "'['")

    await to_thread.run_sync(garble)
    async with opened() as journal:
        found = await verify_journal(journal, lambda _: None)
        assert await journal.read(lambda view: view.last_seq) > 0
    assert {finding.check for finding in found} >= {"chain", "payloads", "operations", "deliveries"}


async def open_and_verify(opened: Open) -> None:
    """A start, and a look at everything."""
    async with opened() as journal:
        await verify_journal(journal, lambda _: None)


def flips(content: bytes) -> Iterator[bytes]:
    """The content with one byte changed, in its header and anywhere."""
    chance = random.Random(7)
    for place in [*range(16, 100, 9), *(chance.randrange(len(content)) for _ in range(60))]:
        damaged = bytearray(content)
        damaged[place] ^= chance.randrange(1, 256)
        yield bytes(damaged)


@pytest.mark.anyio
async def test_a_changed_byte_anywhere_raises_nothing_else(
    opened: Open, settings: JournalSettings, template: Path, journal_file: Path
) -> None:
    """In the header, inside a page, in a row's type: a finding, an error of the journal's own, or nothing."""
    content = await to_thread.run_sync((template / journal_file.name).read_bytes)
    for damaged in flips(content):
        await to_thread.run_sync(journal_file.write_bytes, damaged)
        await to_thread.run_sync(look, settings)
        try:
            await open_and_verify(opened)
        except StoreError:
            await to_thread.run_sync(shutil.rmtree, settings.state_dir)
            await to_thread.run_sync(shutil.copytree, template, settings.state_dir)


def test_a_name_in_the_schema_that_is_no_text_is_refused(
    settings: JournalSettings, journal_file: Path
) -> None:
    """SQLite quotes it in its error, and Python cannot decode that."""
    content = journal_file.read_bytes()
    place = content.index(b"CREATE INDEX operations_open") + len(b"CREATE INDEX operation")
    journal_file.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    with pytest.raises(JournalDamaged):
        verify_file(settings, lambda _: None, now=NOW)
