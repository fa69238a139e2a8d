"""The schema, its migrations, and the named SQL."""

import re
import sqlite3
from collections.abc import Generator
from contextlib import closing
from importlib.resources import files

import pytest

import store.schema as schema  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.connection import CACHED_STATEMENTS, prepare_new
from store.statements import STATEMENTS, parse


@pytest.fixture
def connection() -> Generator[sqlite3.Connection]:
    """An empty journal in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare_new(connection)
        schema.migrate(connection)
        yield connection


def test_all_migrations_together_make_exactly_the_schema(connection: sqlite3.Connection) -> None:
    """`schema.sql` is today's truth: a migration that is not in it, or the other way round, is a mistake."""
    assert schema.describe(connection) == schema.EXPECTED
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as other:
        other.executescript(schema.EXPECTED)
        assert schema.describe(other) == schema.EXPECTED


def test_a_migrated_file_says_whose_it_is(connection: sqlite3.Connection) -> None:
    """The header carries our application_id and the schema's version."""
    assert connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID
    assert schema.version(connection) == schema.VERSION == len(schema.MIGRATIONS)


def test_migrating_twice_changes_nothing(connection: sqlite3.Connection) -> None:
    """Each start migrates; only a new version has anything to do."""
    before = connection.execute("PRAGMA schema_version").fetchone()
    schema.migrate(connection)
    assert connection.execute("PRAGMA schema_version").fetchone() == before


def test_migrations_are_numbered_without_gaps() -> None:
    """Their order is their number, and each one announces it inside its own transaction."""
    assert [number for number, _ in schema.MIGRATIONS] == list(range(1, schema.VERSION + 1))
    for number, script in schema.MIGRATIONS:
        statements = re.sub(r"--.*", "", script).strip()
        assert statements.startswith("BEGIN IMMEDIATE;")
        assert statements.endswith("COMMIT;")
        assert f"PRAGMA user_version = {number};" in statements


def test_a_migration_that_fails_leaves_the_version_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a schema is never left behind."""
    broken = (
        *schema.MIGRATIONS,
        (schema.VERSION + 1, "BEGIN IMMEDIATE; CREATE TABLE t (a); CREATE TABLE t (a); COMMIT;"),
    )
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            schema.migrate(connection)
        assert not connection.in_transaction
        assert schema.version(connection) == schema.VERSION
        assert schema.describe(connection) == schema.EXPECTED


def test_every_table_is_strict(connection: sqlite3.Connection) -> None:
    """A value of the wrong type is refused, not stored."""
    tables = connection.execute(
        "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
    )
    assert [name for name, strict in tables if not strict and not name.startswith("sqlite_")] == []


def test_every_statement_compiles(connection: sqlite3.Connection) -> None:
    """A statement that names what is not there fails here, not at its first use."""
    for name, sql in STATEMENTS.items():
        try:
            connection.execute(
                f"EXPLAIN {sql}", dict.fromkeys(re.findall(r"(?<!'):(\w+)", sql)) or (None,) * sql.count("?")
            )
        except sqlite3.Error as error:
            pytest.fail(f"{name}: {error}")


def test_statements_are_cached_all_together() -> None:
    """None of them is compiled twice in a life: the cache holds more than there are."""
    assert len(STATEMENTS) < CACHED_STATEMENTS


def test_statements_are_parsed_by_name() -> None:
    """Comments before the first name are the file's, and each statement ends where the next name begins."""
    text = "-- what this is about\n\n-- name: one\nSELECT 1;\n\n-- name: two\nSELECT\n  2;\n"
    assert list(parse(text)) == [("one", "SELECT 1"), ("two", "SELECT\n  2")]
    with pytest.raises(ValueError, match="two is empty"):
        list(parse("-- name: one\nSELECT 1;\n-- name: two\n"))


def test_the_sql_is_part_of_the_package() -> None:
    """An installed effectd finds its SQL as the source tree does."""
    package = files("store")
    assert (package / "schema.sql").is_file()
    assert any(item.name.endswith(".sql") for item in (package / "sql").iterdir())
    assert any(item.name.endswith(".sql") for item in (package / "migrations").iterdir())
