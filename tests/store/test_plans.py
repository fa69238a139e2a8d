"""No listing scans a table: each statement's plan, asserted."""

import re
import sqlite3
from collections.abc import Generator
from contextlib import closing

import pytest

import store.schema as schema  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.rebuild import PROJECTIONS
from store.statements import STATEMENTS


@pytest.fixture(scope="module")
def connection() -> Generator[sqlite3.Connection]:
    """An empty journal in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection)
        yield connection


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """The steps of the statement's plan."""
    names = re.findall(r"(?<!'):(\w+)", sql)
    parameters = dict.fromkeys(names, 1) if names else (1,) * sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]


REBUILT = {f"forget_{table}" for table in PROJECTIONS}
OFFLINE = {name for name in STATEMENTS if name.startswith(("all_", "verify_"))} | REBUILT
SCANS = {
    # the recursion's own queue, whose length is bounded by its LIMIT
    "resumed": {"SCAN s"},
    "continuing": {"SCAN s"},
    "unsettled_runs": {"SCAN f"},
    # a row for each history that an operator ended, and for each reason to remember a fence
    "histories": {"SCAN histories"},
    "has_histories": {"SCAN sqlite_schema"},
    "marks": {"SCAN marks"},
    # parked events, of an index that holds no others, and no more than its LIMIT
    "count_dead_letters": {"SCAN (subquery-1)", "SCAN dead_letters USING INDEX dead_letters_parked"},
    # no more than its LIMIT, of an index that holds only what is still to go
    "erasures_left": {"SCAN (subquery-1)"},
    # once in the life of a history: sorts what is open, unsettled, parked or not acknowledged
    "commands_to_record_again": {"SCAN d", "USE TEMP B-TREE FOR ORDER BY"},
}


@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - OFFLINE))
def test_nothing_scans_a_table_or_sorts(connection: sqlite3.Connection, name: str) -> None:
    """Each step of each statement is a SEARCH, and its order is the index's own.

    Listings that walk a table by rowid are bounded by their window.
    """
    steps = plan(connection, STATEMENTS[name])
    bad = {step for step in steps if step.startswith("SCAN") or "B-TREE" in step}
    bad -= {step for step in bad if step == "SCAN CONSTANT ROW"}
    assert bad - SCANS.get(name, set()) == set()


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("unsettled", "operations_unsettled_since"),
        ("open_operations", "operations_open"),
        ("open_commands", "commands_open"),
        ("open_errands", "commands_open"),
        ("open_retries", "commands_open (accepted_seq>?)"),
        ("rowid_of_command", "sqlite_autoindex_commands_1 (command_id=?)"),
        ("open_commands_of_run", "commands_open"),
        ("twins_guarding", "operations_alike (run=? AND args_digest=? AND"),
        ("twins_alike", "operations_alike (run=? AND args_digest=? AND"),
        ("has_alike", "operations_alike (run=? AND"),
        ("tombstones_alike", "tombstones_alike (run=? AND"),
        ("has_alike", "tombstones_alike (run=? AND"),
        ("page_open", "operations_open"),
        ("floor_open", "operations_open"),
        ("page_of_run", "operations_of_run"),
        ("floor_of_run", "operations_of_run"),
        ("page_unsettled", "operations_unsettled"),
        ("page_with_reason", "operations_with_reason"),
        ("page_not_succeeded", "operations_not_succeeded"),
        ("page_inferred", "operations_inferred"),
        ("floor_inferred", "operations_inferred"),
        ("floor_unsettled", "operations_unsettled"),
        ("page_unsettled_of_run", "operations_unsettled_of_run"),
        ("floor_unsettled_of_run", "operations_unsettled_of_run"),
        ("events_of_operation", "events_of_operation"),
        ("deliveries", "deliveries_of_command"),
        ("unsettled_runs", "operations_unsettled_of_run"),
        ("unsettled_of_run", "operations_unsettled_of_run"),
        ("settled_of_run", "operations_of_run"),
        ("open_in_run", "operations_open"),
        ("observations", "observations_of_operation"),
        ("runs_alike", "operations_in_doubt (run=?)"),
        ("runs_alike", "tombstones_in_doubt (run=?)"),
        ("runs_alike", "sqlite_autoindex_runs_1 (run_id>? AND run_id<?)"),
        ("answers_of_run", "operations_of_run (run=? AND rowid>?)"),
        ("answers_of_run", "deliveries_of_command"),
        ("next_child_run", "operations_of_parent (parent_operation_id=? AND run>?)"),
    ],
)
def test_each_listing_uses_the_index_that_was_made_for_it(
    connection: sqlite3.Connection, name: str, index: str
) -> None:
    """A partial index is used only where the statement repeats its condition."""
    assert any(f"INDEX {index} " in f"{step} " for step in plan(connection, STATEMENTS[name]))


def test_without_its_condition_a_partial_index_is_not_used(connection: sqlite3.Connection) -> None:
    """Negative control: the assertion above would see it."""
    steps = plan(connection, "SELECT id FROM operations WHERE accepted_seq > ? ORDER BY accepted_seq LIMIT ?")
    assert any(step.startswith("SCAN") for step in steps)
