"""The host's own references for an operation, in the journal: kept, told, and never compared.

Part of `driver.engine`; imports `driver.core` and `store`.
"""

from typing import cast

from driver.core.commands import AnnotateData
from driver.engine.endings import draft
from store.events import CommandCompleted, CommandFailed, OperationAnnotated
from store.records import JsonObject
from store.transaction import Transaction


def record_annotation(tx: Transaction, data: AnnotateData) -> CommandCompleted | CommandFailed:
    """Replace what the host says of an operation; return the receipt. The same again records nothing new."""
    record = tx.operation(data.operation_id)
    if record is None:
        return CommandFailed(
            code="unknown_operation", message="this journal has no such operation: check the id"
        )
    metadata: dict[str, str] = {name: data.metadata[name] for name in data.metadata}
    if metadata != record.metadata:
        tx.append(draft(data.operation_id, OperationAnnotated(metadata=metadata)))
    if tx.is_erased(data.operation_id):
        metadata = {}  # nobody is told that it was kept
    result: JsonObject = {"operation_id": data.operation_id, "metadata": cast("JsonObject", metadata)}
    return CommandCompleted(result=result)
