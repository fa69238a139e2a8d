"""What the commands other than `tool.call` do: each is one function inside the transaction that accepts it.

Part of `driver.engine`; imports `driver.core` and `store`. A function returns the command's receipt, and
what is to be done in the process once that is durable; it calls no provider.
"""

from dataclasses import dataclass
from typing import Final

from driver.core.commands import ApproveData, CancelData, CommandData, RunCancelData, RunEndData, ToolCallData
from driver.engine.approvals import record_decision
from driver.engine.endings import end_at_rest
from driver.engine.history import runs
from store.events import CommandCompleted, CommandFailed, EventData, OperationNotExecuted
from store.lifecycle import OPEN
from store.records import JsonObject, OperationId, OperationRecord, RunId
from store.transaction import Transaction

CAPABILITIES: Final = tuple(
    data.KIND for data in (ToolCallData, CancelData, RunCancelData, RunEndData, ApproveData)
)
"""The kinds of commands that this version does: what `hello` announces."""

CANCEL_PAGE: Final = 500
"""Operations of a run that are looked at in one step of `run.cancel`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a command asks of the process.

    Operations that ended in the journal, that are to be cancelled, and that may go on, each with the request
    that was granted.
    """

    ended: tuple[OperationId, ...] = ()
    cancelling: tuple[OperationId, ...] = ()
    granted: tuple[tuple[OperationId, str], ...] = ()


NO_EFFECTS: Final = Effects()


def execute(
    tx: Transaction, data: CommandData, run_id: RunId | None, *, confirmed: bool
) -> tuple[EventData, Effects]:
    """Do a command in `tx`; return its receipt, and what follows once that is durable.

    `confirmed`: the plane has confirmed this history in this boot, or there is none.
    """
    assert run_id is not None, "a command without a usable run is never accepted"
    match data:
        case CancelData():
            return _cancel_command(tx, data)
        case RunCancelData():
            return _cancel_run(tx, run_id)
        case RunEndData(outcome=outcome):
            tx.end_run(run_id, outcome)
            return CommandCompleted(result={"run_id": run_id, "outcome": outcome}), NO_EFFECTS
        case ApproveData():
            return _approve(tx, data, confirmed=confirmed)
        case _:
            raise AssertionError(data.KIND)  # announced in CAPABILITIES, and nothing here does it


def _approve(tx: Transaction, data: ApproveData, *, confirmed: bool) -> tuple[EventData, Effects]:
    decided = record_decision(tx, data, confirmed=confirmed)
    ended = (data.operation_id,) if decided.ended else ()
    granted = ((data.operation_id, data.approval_id),) if decided.granted else ()
    return decided.receipt, Effects(ended=ended, granted=granted)


def _cancel_command(tx: Transaction, data: CancelData) -> tuple[EventData, Effects]:
    target = tx.command(data.target_command_id)
    operation = None if target is None or target.operation_id is None else tx.operation(target.operation_id)
    if operation is None:
        message = (
            f"no operation of a command {data.target_command_id} is known here: there is nothing to cancel"
        )
        return CommandFailed(code="unknown_command", message=message), NO_EFFECTS
    effects = _cancel(tx, operation)
    return CommandCompleted(result=_report(operation, effects)), effects


def _cancel_run(tx: Transaction, run_id: RunId) -> tuple[EventData, Effects]:
    ended: list[OperationId] = []
    cancelling: list[OperationId] = []
    after = 0
    while page := tx.open_commands(run_id, after, CANCEL_PAGE):
        for command in page:
            operation = None if command.operation_id is None else tx.operation(command.operation_id)
            if operation is not None:
                effects = _cancel(tx, operation)
                ended.extend(effects.ended)
                cancelling.extend(effects.cancelling)
        after = page[-1].accepted_seq or after
    result: JsonObject = {"run_id": run_id, "cancelled": len(ended), "cancelling": len(cancelling)}
    return CommandCompleted(result=result), Effects(ended=tuple(ended), cancelling=tuple(cancelling))


def _cancel(tx: Transaction, operation: OperationRecord) -> Effects:
    """Where no attempt runs the operation ends here; else the dispatcher is asked."""
    if operation.state not in OPEN:
        return NO_EFFECTS
    if runs(tx, operation):
        return Effects(cancelling=(operation.operation_id,))
    end_at_rest(tx, operation, OperationNotExecuted(reason="cancelled"))
    return Effects(ended=(operation.operation_id,))


def _report(operation: OperationRecord, effects: Effects) -> JsonObject:
    outcome = "cancelled" if effects.ended else ("cancelling" if effects.cancelling else "already_ended")
    return {"operation_id": operation.operation_id, "outcome": outcome}
