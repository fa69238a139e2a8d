"""A journal that has something in every table."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from store.erasure import RunErasure
from store.journal import Journal
from store.lifecycle import Effect
from store.records import JournalId, RunId, TriageRecord
from store.retention import Retention, RetentionSettings
from store.rollback import begin_history
from tests.store.drafts import (
    LATER,
    accepted,
    accepted_command,
    annotated,
    command_id,
    completed,
    driver_started,
    failed,
    late,
    not_executed,
    operation_id,
    reconciled,
    recording,
    refused,
    secret,
    started,
    succeeded,
    unknown,
)

TRACES = 5
"""The seq of the newest event of `_leave_traces`."""


async def fill(journal: Journal) -> None:
    """Something in every table."""
    await journal.transact(lambda tx: begin_history(tx, JournalId("f" * 32)))
    await journal.transact(lambda tx: tx.set_mark("superseded", "by another life"))
    await _leave_traces(journal)
    await journal.transact(recording(driver_started()))
    await journal.transact(recording(accepted(1), started(1), succeeded(1)))
    await journal.transact(
        recording(accepted(2), started(2), unknown(2), started(2, attempt=2), unknown(2, attempts=2))
    )
    await journal.transact(recording(reconciled(2, Effect.NONE), late(2, attempt=2)))
    await journal.transact(recording(accepted(3, run="run-2", resumes=(RunId("run-1"),)), started(3)))
    await journal.transact(recording(failed(3, unsettled=True)))
    await journal.transact(recording(accepted(4), not_executed(4), accepted(5), refused(6)))
    await journal.transact(recording(accepted_command(7, "run.end", {"outcome": "done"}), completed(7)))
    await journal.transact(recording(accepted(8), started(8), succeeded(8, result="x" * 70_000)))
    await journal.transact(recording(secret(11), started(11), secret(12), started(12), succeeded(12)))
    await journal.transact(lambda tx: tx.note_delivery(command_id(1), "accepted"))
    waits = TriageRecord(run_id=RunId("run-2"), attempts=1, not_before=LATER)
    await journal.transact(lambda tx: tx.set_triage(waits))
    await journal.transact(lambda tx: tx.note_observation(operation_id(3), 1, "before", "clean\n"))
    await journal.transact(lambda tx: tx.park(TRACES + 2, "invalid", "too long"))
    await journal.transact(lambda tx: tx.acknowledge(TRACES + 3))
    await journal.transact(lambda tx: tx.requeue(TRACES + 2))
    await journal.transact(recording(accepted(9, parent=8, expires_at=LATER), annotated(9)))
    walk = RunErasure(erased=1, unsettled=1, unacknowledged=1, kept=(operation_id(9),), after=2)
    await journal.transact(recording(accepted_command(30, "run.erase", {})))
    await journal.transact(lambda tx: tx.set_walk(command_id(30), walk))


def leave_shreds(file: Path) -> None:
    """What a life leaves that was killed while it removed a long payload: its first pieces."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for n in (1, 2):
            connection.execute("INSERT INTO pieces (of, n, body) VALUES (1000000, ?, x'7878')", (n,))
        connection.execute("INSERT INTO shreds (of, secret) VALUES (1000000, 0)")


async def _leave_traces(journal: Journal) -> None:
    """What is left of pruned and erased commands, and the first `TRACES` events."""
    pruned = accepted(20, run="run-3", resumes=(RunId("run-1"),))
    await journal.transact(recording(pruned, not_executed(20), driver_started()))
    await journal.transact(lambda tx: tx.acknowledge(2))
    await journal.transact(Retention(RetentionSettings(retention=timedelta())).step)
    await journal.transact(recording(accepted(22, run="run-4"), not_executed(22)))
    await journal.transact(lambda tx: tx.acknowledge(TRACES))
    await journal.transact(lambda tx: tx.erase_run(RunId("run-4")))
