"""Erases a run's content on demand, in the journal. What goes and what stays decides `store.erasure`.

Part of `driver.engine`; imports `driver.core` and `store`.

A small run is gone with the commit that accepts the command. A larger one is an errand: it is walked page by
page (`driver.engine.erasures`), and the journal remembers how far that has come, so that no crash lets it
begin anew. The receipt is recorded when nothing of it is in any file any more.
"""

from driver.core.commands import AnnotateData, ApproveData, CommandData, InvalidData, ReconcileData
from store.erasure import BEGIN, RunErasure
from store.events import CommandCompleted
from store.records import CommandId, JsonObject, RunId
from store.transaction import Transaction


def begin_erasure(tx: Transaction, command_id: CommandId, run_id: RunId) -> CommandCompleted | None:
    """Erase what is settled and acknowledged of the run; return the receipt, which says what was kept.

    None where that takes more than this commit: then the command is an errand.
    """
    return go_on_erasing(tx, command_id, run_id, BEGIN)


def go_on_erasing(
    tx: Transaction, command_id: CommandId, run_id: RunId, so_far: RunErasure
) -> CommandCompleted | None:
    """Go on from where the erasure had come; return the receipt, or None where another step is needed."""
    if so_far.after is not None:
        so_far = tx.erase_run(run_id, so_far)
    if so_far.after is None and tx.vanishes():
        return _receipt(run_id, so_far)
    tx.set_walk(command_id, so_far)
    return None


def _receipt(run_id: RunId, found: RunErasure) -> CommandCompleted:
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
