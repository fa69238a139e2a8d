"""What an attempt came to whose operation an accepted rollback has ended meanwhile.

Part of `driver.engine`; imports `driver.core` and `store`. Part of one unit of the journal.
"""

from driver.core.conclusion import Attempted
from driver.engine.endings import draft
from driver.engine.history import runs
from store.events import LateResult, OperationFailed, OperationSucceeded
from store.lifecycle import Effect
from store.records import OperationId
from store.transaction import Transaction


def end_rolled_back(tx: Transaction, operation_id: OperationId, newest: Attempted) -> bool:
    """Record an answer as a late one. Returns False, and records nothing, where the attempt runs as ever."""
    if not tx.base:
        return False  # this journal has never been rolled back
    record = tx.operation(operation_id)
    if record is None or (record.attempt_count == newest.attempt and runs(tx, record)):
        return False  # what runs may be a further attempt, which somebody has asked for since
    match newest.outcome:
        case OperationSucceeded(result=result, receipt=receipt):
            data = LateResult(attempt=newest.attempt, effect=Effect.OCCURRED, result=result, receipt=receipt)
        case OperationFailed() as failed:
            data = LateResult(
                attempt=newest.attempt,
                effect=failed.effect,
                result=failed.result,
                receipt=failed.receipt,
                error=failed.error,
                error_means=failed.error_means,
            )
        case _:
            return True
    tx.append(draft(operation_id, data))
    return True
