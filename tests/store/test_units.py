"""Units that share a commit leave what they leave one after the other, each in a commit of its own."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

import store.schema as schema  # noqa: PLR0402 - for pyright, `store` alone would be the folder of these tests
from store.batches import Batches
from store.connection import prepare_new
from store.errors import ImpossibleEvent
from store.head import new_head, write_head
from store.lifecycle import Effect, IllegalMove
from store.records import FRAME_BYTES_MAX, JournalId, RunId, timestamp
from store.sealing import terms
from store.transaction import Transaction
from tests.store.drafts import (
    ALIKE,
    accepted,
    accepted_command,
    attempt_ended,
    command_id,
    completed,
    late,
    not_executed,
    operation_id,
    reconciled,
    refused,
    started,
    succeeded,
    unknown,
)

BEGAN: Final = datetime(2030, 1, 1, tzinfo=UTC)
TABLES: Final = (
    "runs",
    "run_links",
    "commands",
    "operations",
    "attempts",
    "evidence",
    "events",
    "payloads",
    "deliveries",
    "journal",
)

Step = Callable[[Transaction], object]
Unit = tuple[Sequence[Step], bool]
"""What a unit does, and whether it fails in the end."""


class Failed(Exception):
    """A unit's own."""


def _append(step: int, n: int) -> Step:
    run = f"run-{n % 2}"
    drafts = (
        accepted(n, run=run, args=ALIKE if n % 3 else None),
        started(n),
        started(n, attempt=2),
        attempt_ended(n),
        succeeded(n),
        unknown(n),
        not_executed(n),
        late(n),
        reconciled(n, Effect.OCCURRED),
        refused(n, run=run),
        accepted_command(n, "run.end", {"outcome": "done"}, run=run),
        completed(n),
        accepted(n, run=run, resumes=(RunId("run-0"),), write=False),
        accepted(n, run=run, parent=(n + 1) % 4),
    )
    return lambda tx: tx.append(drafts[step])


def _look(step: int, n: int) -> Step:
    looks: tuple[Step, ...] = (
        lambda tx: tx.operation(operation_id(n)),
        lambda tx: tx.command(command_id(n)),
        lambda tx: tx.tombstone(command_id(n)),
        lambda tx: tx.run(RunId(f"run-{n % 2}")),
        lambda tx: tx.resumed(RunId(f"run-{n % 2}")),
        lambda tx: tx.twins((RunId("run-0"), RunId("run-1")), ALIKE),
        lambda tx: tx.evidence(operation_id(n)),
        lambda tx: tx.attempts(operation_id(n)),
        lambda tx: tx.open_operations(0, 10),
        lambda tx: (tx.last_seq, tx.chain, tx.counts()),
        lambda tx: tx.note_delivery(command_id(n), "repeated"),
        lambda tx: tx.events(max(tx.last_seq - 2, 0), 3, 10_000),
    )
    return looks[step]


_numbers = st.integers(0, 3)
_steps = st.one_of(
    st.builds(_append, st.integers(0, 4), _numbers),
    st.builds(_append, st.integers(0, 13), _numbers),
    st.builds(_look, st.integers(0, 11), _numbers),
)
_units = st.tuples(st.lists(_steps, max_size=4), st.booleans() | st.just(value=False))


def _live(groups: Sequence[Sequence[Unit]]) -> tuple[list[object], dict[str, list[object]]]:
    """Run each group of units in a commit; return what they saw, and what the tables hold in the end."""
    seen: list[object] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare_new(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        schema.migrate(connection)
        head = new_head(file_id="f" * 32, journal_id=JournalId("a" * 32), created_at=timestamp(BEGAN))
        write_head(connection, head)
        ledger = Batches(connection, head)
        number = 0
        for group in groups:
            connection.execute("BEGIN IMMEDIATE")
            for unit in group:
                number += 1
                seen.append(_run(ledger, unit, BEGAN + timedelta(seconds=number)))
            ledger.write_head()
            connection.execute("COMMIT")
        kept = {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES
        }
    return seen, kept


def _run(ledger: Batches, unit: Unit, now: datetime) -> list[object]:
    seen: list[object] = []
    steps, fails = unit
    around = terms(now, has_room=_yes, may_settle=_yes, frame_bytes_max=FRAME_BYTES_MAX)
    tx = Transaction(ledger, around)
    try:
        seen.extend(step(tx) for step in steps)
        if fails:
            raise Failed
    except (IllegalMove, ImpossibleEvent, Failed) as error:
        tx.undo()
        seen.append(repr(error))
    else:
        tx.keep()
    return seen


def _yes() -> bool:
    return True


@given(st.lists(st.lists(_units, max_size=4), max_size=6))
@settings(max_examples=300)
def test_it_makes_no_difference_which_units_share_a_commit(groups: Sequence[Sequence[Unit]]) -> None:
    """Neither to what a unit sees, nor to what is there in the end; whatever of them failed, and where."""
    together = _live(groups)
    alone = _live([[unit] for group in groups for unit in group])
    assert together == alone


def test_what_a_failed_unit_looked_up_hides_no_receipt_from_the_next_one() -> None:
    """The receipt is of an earlier unit of the same commit: it is not undone with the one that read it."""
    accept, start, succeed, look = _append(0, 1), _append(1, 1), _append(4, 1), _look(1, 1)
    groups = [[([accept, start], False)], [([succeed], False), ([look], True), ([look], False)]]
    together = _live(groups)
    alone = _live([[unit] for group in groups for unit in group])
    assert together == alone
