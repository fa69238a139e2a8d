"""Projections that are made again many rows at a time are those that were made one event after the other."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store.batches import Batches
from store.head import Ledger, read_head
from store.inspection import looking
from store.lifecycle import Effect
from store.rebuild import Rebuilt, Unprojectable
from store.records import RunId, Timestamp
from store.tables import find_operation
from store.transaction import Transaction
from store.view import View
from tests.store.compared import differences
from tests.store.conftest import Open
from tests.store.drafts import (
    accepted,
    attempt_ended,
    attempt_failed,
    attempt_unsent,
    command_id,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    started,
    succeeded,
    unknown,
)

AT = Timestamp("2030-01-01T00:00:00.000000Z")


@pytest.mark.parametrize("recent", [1, 1_024])
@pytest.mark.parametrize("events", [1, 2, 7, 1_024])
@pytest.mark.anyio
async def test_it_makes_no_difference_how_many_events_are_written_at_a_time(
    opened: Open, monkeypatch: pytest.MonkeyPatch, events: int, recent: int
) -> None:
    """Nor whether an operation is remembered until its next event; interleaved, retried and contradicted."""
    monkeypatch.setattr("store.comparison.EVENTS", events)
    monkeypatch.setattr("store.batches.RECENT_MAX", recent)
    numbers = range(1, 5)
    async with opened() as journal:
        await journal.transact(recording(*(accepted(n, run=f"run-{n % 2}") for n in numbers)))
        await journal.transact(recording(*(started(n) for n in numbers)))
        await journal.transact(recording(*(attempt_ended(n) for n in numbers)))
        await journal.transact(recording(*(started(n, attempt=2) for n in numbers)))
        await journal.transact(recording(attempt_unsent(1, attempt=2), started(1, attempt=3)))
        await journal.transact(recording(attempt_failed(2, Effect.NONE, attempt=2), started(2, attempt=3)))
        await journal.transact(recording(succeeded(1, attempts=3), unknown(2, attempts=3)))
        await journal.transact(recording(reconciled(2, Effect.OCCURRED), late(2, attempt=3)))
        await journal.transact(recording(accepted(5), not_executed(5), unknown(3, attempts=2)))
        assert await journal.read(differences) == ()


@pytest.mark.anyio
async def test_an_operation_is_remembered_as_it_would_be_read(opened: Open) -> None:
    """Every member of it, from its acceptance until its receipt."""
    async with opened() as journal:

        def look(view: View) -> None:
            with closing(Rebuilt(view)) as rebuilt:
                assert rebuilt.follow(view, 100) > 0
                remembered = rebuilt.recent(operation_id(1))
                assert remembered is not None
                assert remembered.record == view.operation(operation_id(1))
                read = find_operation(rebuilt.ledger, operation_id(1))
                assert read is not None
                assert remembered.record == read.record
                assert (remembered.id, remembered.run, remembered.listed) == (read.id, read.run, read.listed)

        for draft in (accepted(1), started(1), attempt_ended(1), started(1, attempt=2)):
            await journal.transact(recording(draft))
            await journal.read(look)


def test_an_event_that_cannot_be_written_is_named(journal_file: Path) -> None:
    """Although it is written with others."""
    with closing(sqlite3.connect(journal_file, isolation_level=None)) as connection:
        starts = [
            seq for (seq,) in connection.execute("SELECT seq FROM events WHERE kind = 'operation.started'")
        ]
        wrong = starts[2]
        body = 'CAST(replace(body, \'"key_carrier":"meta"\', \'"key_carrier":null\') AS BLOB)'
        connection.execute(f"UPDATE events SET body = {body} WHERE seq = ?", (wrong,))
    with looking(journal_file) as connection:
        head = read_head(connection)
        view = View(Ledger(connection, head), datetime(2030, 1, 1, tzinfo=UTC), has_room=lambda: False)
        with closing(Rebuilt(view)) as rebuilt, pytest.raises(Unprojectable) as caught:
            rebuilt.follow(view, 1_000)
    assert caught.value.seq == wrong


@pytest.mark.anyio
async def test_a_noted_delivery_waits_as_every_row_does(opened: Open) -> None:
    """The note that an answer was heard costs the next commit no savepoint, nor a look at the command."""
    ran: list[str] = []
    async with opened() as journal:
        await journal.transact(recording(accepted(1), started(1)))
        await journal.transact(recording(succeeded(1)))

        def watched(tx: Transaction) -> None:
            tx.ledger.connection.set_trace_callback(ran.append)
            tx.note_delivery(command_id(1), "delivered")

        def unwatched(tx: Transaction) -> None:
            tx.ledger.connection.set_trace_callback(None)

        journal.later(watched)
        await journal.transact(recording(accepted(2), started(2)))
        await journal.transact(unwatched)
        found = await journal.read(lambda view: view.deliveries(command_id(1)))
    assert [item.answer for item in found] == ["delivered"]
    assert any("INTO deliveries" in sql for sql in ran)
    assert not [sql for sql in ran if "SAVEPOINT" in sql or "FROM command_rows" in sql]


def test_whoever_reads_finds_everything_written(journal_file: Path) -> None:
    """What waits is written before any other statement; of a run's sums nothing is lost."""
    with closing(sqlite3.connect(journal_file, isolation_level=None)) as connection:
        connection.execute("DELETE FROM runs")
        ledger = Batches(connection, read_head(connection))
        ledger.rows = (7, 8, None)
        run = ledger.touch_run(RunId("run-x"), AT)
        later = Timestamp(AT.replace("00Z", "01Z"))
        ledger.count_in_run(run, 2, 1, later)
        ledger.count_in_run(run, 1, -1, AT)
        row = ledger.execute("run", (RunId("run-x"),)).fetchone()
        assert row == (7, "run-x", 0, None, 3, 0, AT, later, 0)
        assert ledger.touch_run(RunId("run-x"), AT) == run == 7
