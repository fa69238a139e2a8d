"""Requests for a person's approval, and decisions about them, in the journal.

Part of `driver.engine`; imports `driver.core` and `store`. Each function is part of one unit of the journal.
"""

from dataclasses import dataclass
from datetime import timedelta

from driver.core.approval import DecisionFacts, Refused, Request, Verdict, decide
from driver.core.commands import ApproveData
from driver.engine.assignments import Assignment
from driver.engine.endings import draft, end_at_rest
from driver.engine.queue import Asked
from store.events import (
    ApprovalDecided,
    ApprovalRequested,
    CommandCompleted,
    CommandFailed,
    OperationNotExecuted,
)
from store.lifecycle import State
from store.records import Digest, OperationId, OperationRecord, moment, timestamp
from store.transaction import Transaction
from store.view import View
from store.wire import data_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a decision led to: its command's receipt, and what became of the operation."""

    receipt: CommandCompleted | CommandFailed
    ended: bool = False
    granted: bool = False


def newest_request(view: View, operation_id: OperationId) -> Request | None:
    """Return the newest request about an operation, and what was decided; None where nobody was asked.

    Nor where that was erased: such an operation has ended, and nobody asks about it again.
    """
    request: ApprovalRequested | None = None
    decision: Verdict | None = None
    for seq in view.operation_events(operation_id):
        event = view.event(seq)
        if event is None or event.kind not in (ApprovalRequested.KIND, ApprovalDecided.KIND):
            continue
        if event.body is None:
            continue
        data = data_of(event)
        if isinstance(data, ApprovalRequested):
            request, decision = data, None
        elif isinstance(data, ApprovalDecided):
            decision = data.decision
    if request is None:
        return None
    return Request(
        approval_id=request.approval_id,
        args_digest=request.args_digest,
        definition_digest=request.definition_digest,
        expires_at=moment(request.expires_at),
        decision=decision,
    )


def ask(tx: Transaction, assignment: Assignment, definition: Digest | None, digits: str) -> Asked:
    """Record a new request for the attempt: from now on the operation waits for a person.

    `digits` become its id: no other request has them.
    """
    expires_at = tx.now + timedelta(seconds=assignment.contract.approval_expires_s)
    if assignment.expires_at is not None:
        expires_at = min(expires_at, assignment.expires_at)
    request = ApprovalRequested(
        approval_id=f"ap_{digits}",
        tool=assignment.tool,
        args_digest=assignment.args_digest,
        arguments=assignment.shown_arguments,
        expires_at=timestamp(expires_at),
        definition_digest=definition,
    )
    tx.append(draft(assignment.operation_id, request))
    return Asked(approval_id=request.approval_id, expires_at=expires_at)


def record_decision(tx: Transaction, data: ApproveData, *, confirmed: bool) -> Decided:
    """Record what a person decided. A denial ends the operation; so does a decision that comes too late."""
    record = tx.operation(data.operation_id)
    facts = DecisionFacts(
        now=tx.now,
        confirmed=confirmed,
        state=None if record is None else record.state,
        newest=None if record is None else newest_request(tx, data.operation_id),
        approval_id=data.approval_id,
    )
    match decide(facts):
        case Refused(code=code, message=message):
            assert record is not None or code == "unknown_operation", "what is known has a record"
            late = code == "approval_expired" and record is not None
            if late and record is not None:
                end_at_rest(tx, record, expiry(tx, record) or OperationNotExecuted(reason="approval_expired"))
            return Decided(receipt=CommandFailed(code=code, message=message), ended=late)
        case _:
            assert record is not None, "nobody can decide about an operation that is not known"
            return _record_valid(tx, record, data)


def expiry(view: View, record: OperationRecord) -> OperationNotExecuted | None:
    """Return why an operation of which no attempt runs is too late by now; None where it is not."""
    if record.expires_at is not None and moment(record.expires_at) <= view.now:
        return OperationNotExecuted(reason="expired")
    if record.state is not State.AWAITING_APPROVAL:
        return None
    request = newest_request(view, record.operation_id)
    if request is None or request.expires_at > view.now:
        return None
    return OperationNotExecuted(reason="approval_expired")


def asked(view: View, operation_id: OperationId) -> Asked | None:
    """Return the request about an operation that nobody has decided yet; None where there is none."""
    request = newest_request(view, operation_id)
    if request is None or request.decision is not None:
        return None
    return Asked(approval_id=request.approval_id, expires_at=request.expires_at)


def _record_valid(tx: Transaction, record: OperationRecord, data: ApproveData) -> Decided:
    decided = ApprovalDecided(
        approval_id=data.approval_id,
        decision=data.decision,
        approver=data.approver,
        reason=data.reason,
        label=data.label,
    )
    tx.append(draft(record.operation_id, decided))
    granted = data.decision == "grant"
    if not granted:
        end_at_rest(tx, record, OperationNotExecuted(reason="approval_denied"))
    receipt = CommandCompleted(
        result={
            "operation_id": record.operation_id,
            "approval_id": data.approval_id,
            "decision": data.decision,
        }
    )
    return Decided(receipt=receipt, ended=not granted, granted=granted)
