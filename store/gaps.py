"""Removes events, and leaves gaps that carry the hash chain across; and which events say nothing any more.

Part of `store`; imports its own modules. Runs in the owner's thread, within the open transaction.

What is pruned or erased of an operation goes at once. But it may have thousands of annotations, of which only
the newest says anything: each replaces the one before. Those that were replaced go first, some with each
commit, as if they were pruned.
"""

import json
from collections.abc import Sequence
from typing import Final

from store import pieces
from store.events import OperationAnnotated
from store.head import Ledger, row_digest
from store.located import OperationRow
from store.records import Timestamp

MANY: Final = 32
"""Annotations of one operation that go at once."""


def replaced(ledger: Ledger, row: OperationRow, before: Timestamp | None = None) -> tuple[int, ...]:
    """Return as many annotations that were replaced as go at once: the oldest that the plane has.

    `before`: recorded before that. Empty where there are fewer: they go with the operation.
    """
    if row.record.metadata is None:
        return ()
    values: dict[str, object] = {
        "operation": row.id,
        "kind": OperationAnnotated.KIND,
        "acked": ledger.head.acked_seq,
        "before": before,
        "many": MANY,
    }
    found = tuple(seq for (seq,) in ledger.execute("replaced", values))
    return found if len(found) == MANY else ()


def weight(ledger: Ledger, seqs: Sequence[int]) -> int:
    """Return how many bytes are overwritten with these events."""
    return sum(ledger.execute("weight", (seq,)).fetchone()[0] for seq in seqs)


def trace(ledger: Ledger, run: int) -> None:
    """Note what the run is now: its events alone do not tell any more."""
    row = ledger.execute("run_to_trace", (run,)).fetchone()
    resumes = json.dumps([each for (each,) in ledger.execute("resumed_by_rowid", (run,))])
    values = (run, *row, resumes)
    ledger.execute("set_trace", (*values, row_digest(*values)))


def remove(ledger: Ledger, seqs: Sequence[int]) -> None:
    """Remove events, in ascending order, and all that is kept beside them."""
    for first, last in _stretches(seqs):
        _open_gap(ledger, first, last)
    for seq in seqs:
        pieces.let_go(ledger, seq, secret=False)
        for statement in ("delete_dead_letter", "delete_payload", "delete_remains", "delete_event"):
            ledger.execute(statement, (seq,))


def _stretches(seqs: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def _open_gap(ledger: Ledger, first: int, last: int) -> None:
    """Note that the events from `first` to `last` are gone, together with the gaps that they touch."""
    chain = ledger.execute("chain_at", (last,)).fetchone()[0]
    before = ledger.execute("gap_before", (first - 1,)).fetchone()
    after = ledger.execute("gap_after", (last + 1,)).fetchone()
    for gap in (before, after):
        if gap is not None:
            ledger.execute("delete_gap", (gap[0],))
    first = first if before is None else before[0]
    if after is not None:
        last, chain = after[1], after[2]
    ledger.execute("insert_gap", (first, last, chain, row_digest(first, last, chain)))
