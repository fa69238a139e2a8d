"""The host's own references for an operation, in the journal: kept, told, and never compared.

Part of `driver.engine`; imports `driver.core` and `store`. What they say stands in the operation's own event
and nowhere else: the receipt may be of another run, and erasing the operation would not find it there.
"""

from driver.core.answers import NO_SUCH_OPERATION
from driver.core.commands import AnnotateData
from driver.engine.endings import draft
from store.events import CommandCompleted, CommandFailed, OperationAnnotated
from store.records import JsonObject
from store.transaction import Transaction


def record_annotation(tx: Transaction, data: AnnotateData) -> CommandCompleted | CommandFailed:
    """Replace what the host says of an operation; return the receipt, which says whether that was new.

    The same again records nothing.
    """
    record = tx.operation(data.operation_id)
    if record is None:
        return CommandFailed(code="unknown_operation", message=NO_SUCH_OPERATION)
    metadata: dict[str, str] = {name: data.metadata[name] for name in data.metadata}
    recorded = metadata != record.metadata
    if recorded:
        tx.append(draft(data.operation_id, OperationAnnotated(metadata=metadata)))
    result: JsonObject = {"operation_id": data.operation_id, "recorded": recorded}
    return CommandCompleted(result=result)
