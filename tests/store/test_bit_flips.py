"""No flipped bit survives: in a value, whichever row and column it is in, or anywhere in the file."""

import random
import shutil
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.errors import OpenRefused, StoreError
from store.settings import JournalSettings
from tests.report import add
from tests.store.test_damage import UNSEEN, columns, look

SECTION = "flipped bits"
FLIPS = 1_000
CELLS = 1_000
TABLES = sorted({table for table, _, _ in columns()})
Value = str | int | float | bytes


def flipped(value: Value, bit: int) -> Value:
    """The value with one of its bits changed: as SQLite keeps it, of the same type."""
    match value:
        case int():
            return value ^ (1 << bit % 31)
        case float():
            (bits,) = struct.unpack("<q", struct.pack("<d", value))
            return float(struct.unpack("<d", struct.pack("<q", bits ^ (1 << bit % 52)))[0])
        case str():
            return _flipped(value.encode("utf-8", "surrogateescape"), bit)  # as bytes: it may be no text
        case bytes():
            return _flipped(value, bit)


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8 % len(content)] ^= 1 << bit % 8
    return bytes(changed)


def cells(path: Path) -> Iterator[tuple[str, str, int, Value]]:
    """Table, column, place of the row, and value of everything that has a bit."""
    with closing(sqlite3.connect(path)) as connection:
        for table in TABLES:
            found = connection.execute(f"SELECT * FROM {table}")
            names = [item[0] for item in found.description]
            for place, row in enumerate(found.fetchall()):
                for name, value in zip(names, row, strict=True):
                    if value not in (None, "", b""):
                        yield table, name, place, value


def removed_soon(path: Path) -> set[tuple[str, str, int]]:
    """Pieces of payloads that are gone: nobody reads them any more, and later commits remove them."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT of IN (SELECT of FROM shreds) FROM pieces").fetchall()
    return {("pieces", "body", place) for place, (is_doomed,) in enumerate(found) if is_doomed}


def flip(path: Path, table: str, column: str, place: int, value: Value) -> bool:
    """Put the value into the row; False where the table does not take it: two rows would have one key."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.text_factory = bytes
        connection.execute("PRAGMA ignore_check_constraints = ON")
        found = connection.execute(f"SELECT * FROM {table} LIMIT 1 OFFSET ?", (place,))
        names, row = [item[0] for item in found.description], found.fetchone()
        key = " AND ".join(f"CAST({name} AS BLOB) IS CAST(? AS BLOB)" for name in names)
        (kind,) = connection.execute(f"SELECT typeof({column}) FROM {table} WHERE {key}", row).fetchone()
        new = "CAST(? AS TEXT)" if kind == b"text" else "?"
        try:
            done = connection.execute(f"UPDATE {table} SET {column} = {new} WHERE {key}", (value, *row))
        except sqlite3.IntegrityError:
            return False
        return done.rowcount == 1


def is_found(settings: JournalSettings) -> bool:
    """Whether the journal is refused, or something is wrong with it."""
    found = look(settings)
    return isinstance(found, OpenRefused) or bool(found)


def test_a_flipped_bit_in_each_column_of_each_table_is_found(
    settings: JournalSettings, template: Path, journal_file: Path
) -> None:
    """In the first row that has a value there."""
    chance = random.Random(11)
    seen: set[tuple[str, str]] = set()
    for table, column, place, value in cells(template / journal_file.name):
        if (table, column) in seen:
            continue
        shutil.copyfile(template / journal_file.name, journal_file)
        if flip(journal_file, table, column, place, flipped(value, chance.randrange(10_000))):
            seen.add((table, column))
            assert is_found(settings) or (table, column) in UNSEEN, f"{table}.{column}, row {place}"
    assert {(table, column) for table, column, _ in columns()} - seen == EMPTY


EMPTY = {
    ("attempts", "dedupe_horizon_s"),
    ("journal", "fence_at"),
    ("journal", "fence_detail"),
    ("journal", "fence_reason"),
    ("traces", "outcome"),
}
"""Columns that no row of the template has a value in: `test_damage` puts one there."""


@pytest.mark.lane
def test_a_flipped_bit_in_any_row_is_found(
    settings: JournalSettings, template: Path, journal_file: Path, pytestconfig: pytest.Config
) -> None:
    """Values from all rows of all tables, chosen at random, each with one of its bits."""
    chance = random.Random(12)
    doomed = removed_soon(template / journal_file.name)
    everything = [cell for cell in cells(template / journal_file.name) if cell[:3] not in doomed]
    tried = 0
    for table, column, place, value in chance.choices(everything, k=CELLS):
        shutil.copyfile(template / journal_file.name, journal_file)
        if not flip(journal_file, table, column, place, flipped(value, chance.randrange(10_000))):
            continue
        tried += 1
        assert is_found(settings) or (table, column) in UNSEEN, f"{table}.{column}, row {place}"
    add(pytestconfig, SECTION, f"{tried:,} in {len(everything):,} values: all found")
    assert tried > CELLS / 2


def content(path: Path) -> list[object]:
    """All that the file says: its schema, and each row of each table."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        said: list[object] = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema"
        ).fetchall()
        said += [connection.execute(f"SELECT rowid, * FROM {table}").fetchall() for table in _WITH_ROWID]
        said += [
            connection.execute(f"SELECT {_SAYS.get(table, '*')} FROM {table}").fetchall() for table in TABLES
        ]
        said += [
            connection.execute(f"PRAGMA {name}").fetchall() for name in ("application_id", "user_version")
        ]
        return said


_SAYS = {"pieces": "of, n"}
"""Without what is left of a payload that is over: nobody reads it any more."""
_WITH_ROWID = sorted(set(TABLES) - {"attempts", "evidence", "marks", "run_links", *_SAYS})


@pytest.mark.lane
def test_a_thousand_flipped_bits_in_the_file_are_found_or_say_nothing(
    settings: JournalSettings, template: Path, journal_file: Path, pytestconfig: pytest.Config
) -> None:
    """Refused, found, or in bytes that mean nothing: then every row reads as it was."""
    whole = journal_file.read_bytes()
    said = content(journal_file)
    chance = random.Random(13)
    outcomes: Counter[str] = Counter()
    for _ in range(FLIPS):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        journal_file.write_bytes(damaged)
        try:
            found = look(settings)
        except StoreError:
            outcomes["refused"] += 1
            continue
        if isinstance(found, OpenRefused):
            outcomes["refused"] += 1
        elif found:
            outcomes["found"] += 1
        else:
            assert content(journal_file) == said, f"byte {place}, bit {bit} changed what the file says"
            outcomes["harmless"] += 1
    add(pytestconfig, SECTION, f"in the file: {FLIPS:,}, {dict(outcomes)}")
    assert outcomes["refused"] + outcomes["found"] > FLIPS / 4
