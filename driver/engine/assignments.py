"""One operation on its way to its provider: what the journal knows of it, and what today's contracts say.

Part of `driver.engine`; imports `driver.core` and `store`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from driver.core.contracts import Contract
from driver.core.redaction import Redaction
from driver.core.reports import Redactor
from driver.engine.history import has_begun, rests
from driver.engine.machine import Machine
from driver.engine.queue import Waiting
from driver.engine.terms import Terms
from driver.engine.withheld import withheld
from driver.log import about_call
from store.declared import EventData
from store.events import Draft, OperationStarted
from store.lifecycle import ENDED, State
from store.records import (
    CommandId,
    Digest,
    JsonObject,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    moment,
    timestamp,
)
from store.values import light
from store.view import View


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One attempt of one operation, whole: what to call, under which contract, for whom, until when."""

    operation_id: OperationId
    command_id: CommandId
    run_id: RunId
    origin: Origin
    tool: str
    arguments: JsonObject
    args_digest: Digest
    contract: Contract
    redaction: Redaction | None
    """What is withheld of the call, by today's contract and the one of its acceptance."""
    attempt: int
    expires_at: datetime | None
    traceparent: str | None
    needs_approval: bool = False
    granted: str | None = None
    """The request that this process life heard a grant of."""
    revived_by: CommandId | None = None
    """The command that asks for this attempt, where its operation has ended."""

    def draft(self, data: EventData) -> Draft:
        """Return the draft of an event about this operation."""
        return Draft(
            data=data,
            run_id=self.run_id,
            command_id=self.command_id,
            operation_id=self.operation_id,
            origin=self.origin,
            redact=() if self.redaction is None else self.redaction.paths,
        )

    @property
    def redactor(self) -> Redactor | None:
        """What keeps answers and messages from telling what is withheld; None where nothing is."""
        if self.redaction is None:
            return None
        return Redactor(redaction=self.redaction, arguments=self.arguments)

    @property
    def shown_arguments(self) -> JsonObject | None:
        """The arguments as everybody may see them."""
        redactor = self.redactor
        return self.arguments if redactor is None else redactor.shown_arguments()

    @property
    def place(self) -> Waiting:
        """The place of its operation in the queue."""
        return Waiting(
            operation_id=self.operation_id,
            expires_at=self.expires_at,
            traceparent=self.traceparent,
            unapproved=self.needs_approval and self.granted is None,
            granted=self.granted,
            revived_by=self.revived_by,
        )

    def deadline(self, now: datetime) -> datetime:
        """Return when an attempt that starts at `now` must be over: its budget, capped by the expiry."""
        own = now + timedelta(seconds=self.contract.budget_s)
        return own if self.expires_at is None else min(own, self.expires_at)


def identify(assignment: Assignment) -> None:
    """Bind whose attempt this task carries out to every line that it logs."""
    about_call(assignment.operation_id, assignment.run_id, assignment.attempt)


def may_begin(view: View, record: OperationRecord, revived_by: CommandId | None = None) -> bool:
    """Whether the operation still waits for an attempt: its first, or another one.

    One that has ended does where the command `revived_by` is open, and no attempt has begun since.
    """
    if record.state in ENDED:
        command = None if revived_by is None else view.command(revived_by)
        return command is not None and command.receipt_seq is None and not has_begun(record, command)
    return record.state in (State.ACCEPTED, State.AWAITING_APPROVAL) or rests(view, record)


def load(view: View, place: Waiting, terms: Terms) -> Assignment | None:
    """Return the whole of a waiting operation; None where it has ended, or was erased, meanwhile."""
    record = view.operation(place.operation_id)
    if record is None or not may_begin(view, record, place.revived_by):
        return None
    return _load(view, record, place, terms, record.attempt_count + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An attempt that an earlier process life began, and that may have outlived it."""

    assignment: Assignment
    started_at: datetime
    deadline_at: datetime


def under_way(view: View, record: OperationRecord, place: Waiting, terms: Terms) -> UnderWay | None:
    """Return the attempt that runs; None where its provider's attempts do not survive the daemon.

    `place` is where its operation would wait for another one.
    """
    if terms.readopting(record.tool) is None:
        return None
    assignment = _load(view, record, place, terms, record.attempt_count)
    if assignment is None:
        return None
    attempt = view.attempts(record.operation_id)[-1]
    return UnderWay(
        assignment=assignment, started_at=moment(attempt.started_at), deadline_at=moment(attempt.deadline_at)
    )


def _load(
    view: View, record: OperationRecord, place: Waiting, terms: Terms, attempt: int
) -> Assignment | None:
    data = view.command_data(record.command_id)
    arguments = None if data is None else data.arguments
    if arguments is None:
        return None
    contract = terms.lookup(record.tool)
    return Assignment(
        operation_id=record.operation_id,
        command_id=record.command_id,
        run_id=record.run_id,
        origin=record.origin,
        tool=record.tool,
        arguments=arguments,
        args_digest=record.args_digest,
        contract=contract,
        redaction=withheld(contract, data),
        attempt=attempt,
        expires_at=place.expires_at,
        traceparent=place.traceparent,
        # what a person was asked about waits for that person, whatever the contract says by now
        needs_approval=contract.approval == "required" or record.state is State.AWAITING_APPROVAL,
        granted=place.granted,
        revived_by=place.revived_by,
    )


def intent(
    assignment: Assignment, now: datetime, machine: Machine, approval_id: str | None = None
) -> OperationStarted:
    """Return the intent of an attempt that starts at `now`; `approval_id` is the one that it uses up."""
    contract = assignment.contract
    # what the provider forgets one day, and what may still land, is timed by a clock that nobody sets, too
    clock = machine() if contract.idempotent or contract.write else None
    return OperationStarted(
        tool=assignment.tool,
        attempt=assignment.attempt,
        idempotency_key=assignment.operation_id,
        key_carrier=str(contract.key_carrier),
        idempotent=contract.idempotent,
        dedupe_horizon_s=contract.dedupe_horizon_s,
        args_digest=assignment.args_digest,
        deadline_at=timestamp(assignment.deadline(now)),
        approval_id=approval_id,
        machine_boot_id=None if clock is None else clock.boot_id,
        machine_uptime_s=None if clock is None else clock.uptime_s,
    )
