"""Erases a run's content on demand, in the journal. What goes and what stays decides `store.erasure`.

Part of `driver.engine`; imports `driver.core` and `store`.
"""

from driver.core.commands import AnnotateData, ApproveData, CommandData, InvalidData, ReconcileData
from store.events import CommandCompleted
from store.records import JsonObject, RunId
from store.transaction import Transaction


def record_erasure(tx: Transaction, run_id: RunId) -> CommandCompleted:
    """Erase what is settled and acknowledged of the run; return the receipt, which says what was kept."""
    found = tx.erase_run(run_id)
    kept: JsonObject = {
        "unsettled": found.unsettled,
        "unacknowledged": found.unacknowledged,
        "operation_ids": list(found.kept),
        "truncated": len(found.kept) < found.unsettled + found.unacknowledged,
    }
    return CommandCompleted(result={"run_id": run_id, "erased": found.erased, "kept": kept})


def leaves_nothing(data: CommandData | InvalidData) -> bool:
    """Whether a command only says something about an operation: its data is not kept.

    What it says stands in the operation's own event, and is erased with that: the command may be of another
    run, and nobody would find it there.
    """
    return isinstance(data, ReconcileData | AnnotateData | ApproveData)
