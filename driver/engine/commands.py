"""What commands other than `tool.call` do: one function for each kind, in the transaction that accepts it.

Part of `driver.engine`; imports `driver.core` and `store`. A function returns the command's receipt, and
what is to be done in the process once that is durable; it calls no provider. Where the receipt can only
come later (a probe, another attempt, a compensation) it returns none: the command stays open, and is an
errand (`driver.engine.errands`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from driver.core.commands import (
    COMMAND_TYPES,
    AnnotateData,
    ApproveData,
    CancelData,
    CommandData,
    CompensateData,
    EraseData,
    ReconcileData,
    RetryData,
    RunCancelData,
    RunEndData,
    ToolCallData,
    TriageData,
)
from driver.engine.annotations import record_annotation
from driver.engine.approvals import record_decision
from driver.engine.capacity import overfull
from driver.engine.endings import end_at_rest
from driver.engine.erasing import begin_erasure
from driver.engine.history import runs
from driver.engine.proof import asked_for, compensation_of, operation_of
from driver.engine.queue import Waiting
from driver.engine.verdicts import record_verdict
from store.events import CommandCompleted, CommandFailed, OperationNotExecuted
from store.lifecycle import OPEN
from store.records import CommandId, CommandRecord, JsonObject, OperationId, OperationRecord, Origin, RunId
from store.transaction import Transaction

CANCEL_PAGE: Final = 500
"""Operations of a run that are looked at in one step of `run.cancel`."""

Receipt: TypeAlias = CommandCompleted | CommandFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a command asks of the process.

    Operations that ended in the journal, that are to be cancelled, and that may go on, each with the request
    that was granted.
    """

    ended: tuple[OperationId, ...] = ()
    cancelling: tuple[OperationId, ...] = ()
    granted: tuple[tuple[OperationId, str], ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """The operations that the command accepted, which wait for their turn."""


NO_EFFECTS: Final = Effects()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A command that is being accepted.

    `confirmed`: the plane has confirmed this history in this boot, or there is none.
    """

    command_id: CommandId
    run_id: RunId
    origin: Origin
    data: CommandData
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of a command: its receipt, or None where that comes later."""

    receipt: Receipt | None
    effects: Effects = NO_EFFECTS


# the data of a family is of the kind that it stands under in the table
Family: TypeAlias = Callable[[Transaction, Given, Any], Done]
"""Does the commands of one kind, given their data."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The kinds of commands that this daemon does, and what does each."""

    families: Mapping[str, Family] = field(default_factory=dict[str, Family])
    """Beside those that are the same everywhere (`ALWAYS`)."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are done, calls included, in the order of the protocol."""
        done = {ToolCallData.KIND, *ALWAYS, *self.families}
        return tuple(data.KIND for data in COMMAND_TYPES if data.KIND in done)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The same as `hello` announces them: what is done to an operation by its bare name (`probe`)."""
        return tuple(kind.removeprefix("operation.") for kind in self.kinds)

    def execute(self, tx: Transaction, given: Given) -> Done:
        """Do a command in `tx`; return its receipt, and what follows once that is durable."""
        refused = overfull(tx, given.data)
        if refused is not None:
            return Done(receipt=refused)
        kind = given.data.KIND
        return (ALWAYS.get(kind) or self.families[kind])(tx, given, given.data)


def _approve(tx: Transaction, given: Given, data: ApproveData) -> Done:
    decided = record_decision(tx, data, confirmed=given.confirmed)
    ended = (data.operation_id,) if decided.ended else ()
    granted = ((data.operation_id, data.approval_id),) if decided.granted else ()
    return Done(receipt=decided.receipt, effects=Effects(ended=ended, granted=granted))


def _reconcile(tx: Transaction, given: Given, data: ReconcileData) -> Done:
    del given
    return Done(receipt=record_verdict(tx, data))


def _annotate(tx: Transaction, given: Given, data: AnnotateData) -> Done:
    del given
    return Done(receipt=record_annotation(tx, data))


def _end_run(tx: Transaction, given: Given, data: RunEndData) -> Done:
    tx.end_run(given.run_id, data.outcome)
    return Done(receipt=CommandCompleted(result={"run_id": given.run_id, "outcome": data.outcome}))


def _cancel_command(tx: Transaction, given: Given, data: CancelData) -> Done:
    """Cancel one command; what waits, once the plane has confirmed the history: see `engine.cancelling`."""
    target = tx.command(data.target_command_id)
    operation = None if target is None else _subject(tx, target)
    if operation is None:
        message = (
            f"no operation of a command {data.target_command_id} is known here: there is nothing to cancel"
        )
        return Done(receipt=CommandFailed(code="unknown_command", message=message))
    if not given.confirmed and _waits(tx, operation):
        return Done(receipt=None)
    effects = _cancel(tx, operation)
    return Done(receipt=CommandCompleted(result=_report(operation, effects)), effects=effects)


def _cancel_run(tx: Transaction, given: Given, data: RunCancelData) -> Done:
    """Cancel what is open in a run, once the plane has confirmed the history, likewise."""
    del data
    if not given.confirmed:
        return Done(receipt=None)
    ended: list[OperationId] = []
    cancelling: list[OperationId] = []
    after = 0
    while page := tx.open_commands(given.run_id, after, CANCEL_PAGE):
        for command in page:
            operation = None if command.command_id == given.command_id else _subject(tx, command)
            if operation is not None and operation.operation_id not in cancelling:
                effects = _cancel(tx, operation)
                ended.extend(effects.ended)
                cancelling.extend(effects.cancelling)
        after = page[-1].accepted_seq or after
    result: JsonObject = {"run_id": given.run_id, "cancelled": len(ended), "cancelling": len(cancelling)}
    effects = Effects(ended=tuple(ended), cancelling=tuple(cancelling))
    return Done(receipt=CommandCompleted(result=result), effects=effects)


def _subject(tx: Transaction, command: CommandRecord) -> OperationRecord | None:
    """Return the operation that is cancelled with a command: its own, or the one that it has executed."""
    if command.operation_id is not None:
        return tx.operation(command.operation_id)
    about = operation_of(tx, command) if command.kind in (RetryData.KIND, CompensateData.KIND) else None
    if about is None or command.kind == RetryData.KIND:
        return None if about is None else tx.operation(about)
    return compensation_of(tx, about)


def _waits(tx: Transaction, operation: OperationRecord) -> bool:
    """Whether an attempt may begin, and none runs."""
    if runs(tx, operation):
        return False
    return operation.state in OPEN or asked_for(tx, operation.operation_id) is not None


def _cancel(tx: Transaction, operation: OperationRecord) -> Effects:
    """Where no attempt runs the operation ends, or the wish for another one; else the dispatcher is asked."""
    if runs(tx, operation):
        return Effects(cancelling=(operation.operation_id,))
    if not _waits(tx, operation):
        return NO_EFFECTS
    end_at_rest(tx, operation, OperationNotExecuted(reason="cancelled"))
    return Effects(ended=(operation.operation_id,))


def _report(operation: OperationRecord, effects: Effects) -> JsonObject:
    outcome = "cancelled" if effects.ended else ("cancelling" if effects.cancelling else "already_ended")
    return {"operation_id": operation.operation_id, "outcome": outcome}


def _triage(tx: Transaction, given: Given, data: TriageData) -> Done:
    """The supervisor hears of it by the acceptance itself, once that is durable."""
    del data
    run = tx.run(given.run_id)
    result: JsonObject = {"run_id": given.run_id, "unsettled": 0 if run is None else run.unsettled}
    return Done(receipt=CommandCompleted(result=result))


def _erase(tx: Transaction, given: Given, data: EraseData) -> Done:
    del data
    return Done(receipt=begin_erasure(tx, given.command_id, given.run_id))


ALWAYS: Final[Mapping[str, Family]] = {
    CancelData.KIND: _cancel_command,
    RunCancelData.KIND: _cancel_run,
    RunEndData.KIND: _end_run,
    ApproveData.KIND: _approve,
    ReconcileData.KIND: _reconcile,
    AnnotateData.KIND: _annotate,
    EraseData.KIND: _erase,
    TriageData.KIND: _triage,
}
"""What needs nothing but the journal."""
