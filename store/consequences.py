"""What follows from an event in the journal itself: recorded in the same unit, whoever recorded the event.

Part of `store`; imports its own modules. Three things do: a contradiction among the strongest evidence of an
attempt is an event of its own (`operation.diverged`); what happens in a run may settle the operation that
was delegated to it, or open it again (`store.delegation`); and what a compensation comes to is told of the
operation that it compensates (`operation.compensated`), once, and again when more is known.
"""

from collections.abc import Iterator
from dataclasses import replace

from store.declared import EventData
from store.delegation import conclusion, delegation, parents
from store.events import (
    Draft,
    OperationCompensated,
    OperationDiverged,
    OperationFailed,
    OperationNotExecuted,
    OperationUnknown,
)
from store.head import Ledger
from store.located import CommandRow, OperationRow
from store.projection import Fact
from store.records import COMPENSATION_PREFIX, OPERATION_RETRY, OperationId, OperationRecord, RunId
from store.tables import Projected, find_operation
from store.wanted import operation_named
from store.wire import frame_of


def with_children(ledger: Ledger, data: EventData, parent: OperationRow) -> EventData:
    """Return the end of an operation with what is known, at this moment, of the runs that served it."""
    if not isinstance(data, OperationFailed | OperationUnknown):
        return data
    found = delegation(ledger, parent)
    if found is None:
        return data
    return replace(
        data,
        child_run_id=found.run_ids[0],
        child_ops_total=found.total,
        child_ops_unresolved=found.unresolved,
    )


def of_event(ledger: Ledger, fact: Fact, before: OperationRow, made: Projected) -> Iterator[Draft]:
    """Yield what follows from an event of an operation, each to be recorded before the next is asked for."""
    operation_id = before.record.operation_id
    for seq in made.contradicted:
        detail = (
            f"event {seq} and event {fact.seq} say the opposite of each other, and neither can be overridden"
        )
        yield Draft(
            data=OperationDiverged(evidence=(seq, fact.seq), detail=detail), operation_id=operation_id
        )
    if isinstance(fact.data, OperationFailed | OperationUnknown | OperationNotExecuted):
        yield from _of_children(ledger, operation_id)
    after = made.after
    if after.ended_at is not None and _standing(after) != _standing(before.record):
        yield from of_run(ledger, before.run, before.record.run_id)
    if after.ended_at is not None and after.command_id.startswith(COMPENSATION_PREFIX):
        yield from _of_compensation(ledger, after)


def _standing(operation: OperationRecord) -> tuple[object, ...]:
    """What the operation's parent is judged by."""
    return operation.ended_at is None, operation.effect, operation.effect_by, operation.settled


def _of_compensation(ledger: Ledger, compensation: OperationRecord) -> Iterator[Draft]:
    """Yield what is new about a compensation that has ended, for the operation that it compensates."""
    forward = find_operation(ledger, compensation.command_id.removeprefix(COMPENSATION_PREFIX))
    if forward is None:
        return  # it was pruned
    told = ledger.execute("newest_of_kind", (forward.id, OperationCompensated.KIND)).fetchone()
    body = None if told is None else told[0]
    if body is not None and frame_of(body)["data"]["effect"] == compensation.effect:
        return
    found = OperationCompensated(
        compensation_operation_id=compensation.operation_id, effect=compensation.effect
    )
    yield Draft(data=found, operation_id=forward.record.operation_id)


def of_call(ledger: Ledger, parent: OperationId) -> Iterator[Draft]:
    """Yield what follows, for the operation that a new call names as its parent, from its being there."""
    yield from _of_children(ledger, parent)


def of_receipt(ledger: Ledger, command: CommandRow, payload: bytes | None) -> Iterator[Draft]:
    """Yield what follows from the receipt of a command that is no call. `payload` is the command's `data`.

    It may have ended its run, or have been the last that its run waited for; another attempt may have been
    asked for of an operation of another run.
    """
    runs = {} if command.record.run_id is None else {command.run: command.record.run_id}
    named = operation_named(payload) if command.record.kind == OPERATION_RETRY else None
    row = None if named is None else find_operation(ledger, named)
    if row is not None:
        runs[row.run] = row.record.run_id
    for run, run_id in runs.items():
        yield from of_run(ledger, run, run_id)


def of_run(ledger: Ledger, run: int, run_id: RunId) -> Iterator[Draft]:
    """Yield what a run that has ended proves about the operations that it serves."""
    for parent in parents(ledger, run, run_id):
        yield from _of_children(ledger, parent)


def _of_children(ledger: Ledger, parent: OperationId) -> Iterator[Draft]:
    """Yield what is new about an operation by what its child runs did, where anything is."""
    word = conclusion(ledger, parent)
    if word is not None:
        yield word
