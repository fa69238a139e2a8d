"""Which operation a command is about that is no call, and what open ones still want: that stays, however old.

Part of `store`; imports its own modules. Runs in the owner's thread, within the open transaction.
"""

import json
from dataclasses import dataclass

from store import pieces
from store.head import Ledger
from store.located import OperationRow
from store.records import JsonObject, OperationId


@dataclass(frozen=True, slots=True)
class Wanted:
    """Operations that are named, and rowids of runs of which each operation may be meant."""

    operations: frozenset[OperationId]
    runs: frozenset[int]

    def has(self, row: OperationRow) -> bool:
        """Whether somebody is still to be answered about the operation."""
        return row.record.operation_id in self.operations or row.run in self.runs


def wanted(ledger: Ledger) -> Wanted:
    """Return what the open commands that are no calls want: the operation that each names, else its run.

    Another attempt, a probe or a compensation is asked for by an open command and nothing else, until it has
    begun: without its operation it could be neither carried out nor answered.
    """
    operations: set[OperationId] = set()
    runs: set[int] = set()
    for seq, run in ledger.execute("open_errands").fetchall():
        named = operation_named(pieces.payload(ledger, seq))
        if named is not None:
            operations.add(named)
        elif run is not None:
            runs.add(run)
    return Wanted(frozenset(operations), frozenset(runs))


def operation_named(payload: bytes | None) -> OperationId | None:
    """Return the operation that a command's `data` names; None where it names none, or is not kept."""
    if payload is None:
        return None
    data: JsonObject = json.loads(payload)
    named = data.get("operation_id")
    return OperationId(named) if isinstance(named, str) else None
