"""How what waits for an attempt ends without one: each function is one unit of the journal.

Part of `driver.engine`; imports its own siblings and `store`.
"""

from collections.abc import Sequence

from driver.core.revival import ERASED
from driver.engine.approvals import expiry
from driver.engine.assignments import may_begin
from driver.engine.endings import end_at_rest
from driver.engine.queue import Waiting
from store.events import OperationNotExecuted
from store.lifecycle import ENDED
from store.records import OperationId
from store.transaction import Transaction


def end_waiting(
    tx: Transaction, operation_ids: Sequence[OperationId], reason: OperationNotExecuted | None
) -> list[OperationId]:
    """End those of these operations of which no attempt runs; without a `reason`, those that are late.

    Returns which have ended. Of one that had ended before, what ends is the wish for another attempt.
    """
    ended: list[OperationId] = []
    for operation_id in operation_ids:
        record = tx.operation(operation_id)
        if record is None:
            continue
        why = reason or expiry(tx, record)
        if why is not None and (record.state in ENDED or may_begin(tx, record)):
            end_at_rest(tx, record, why)
            ended.append(operation_id)
    return ended


def give_up(tx: Transaction, place: Waiting) -> None:
    """End the wish for another attempt of an operation that cannot be called any more."""
    record = None if place.revived_by is None else tx.operation(place.operation_id)
    if record is not None and may_begin(tx, record, place.revived_by):
        end_at_rest(tx, record, None, ERASED)
