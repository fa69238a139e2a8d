"""`operation.compensate` and `run.compensate`: the declared call that takes an effect back, once.

Part of `driver.engine`; imports `driver.core`, its own siblings and `store`.

Theory of operation
-------------------
A compensation is a call like any other, accepted under a command id that follows from the forward
operation's: `compensate:` and its id. Deciding on it and accepting it are one transaction, so whether there
is one is a question to the journal, and no redelivery, second wish or crash can make two. From then on it is
the dispatcher's, or after a crash the recovery's; the command that asked for it waits for its end. One that
has not succeeded is not called again by a second wish: that is for `operation.retry`, by rule R. What it
came to is told of the forward operation by the journal itself (`store.consequences`).

Where the forward operation is older than an accepted rollback, or than the backup that was restored, its
compensation may have been made in the time that was lost, by whoever asked for it then. So it is not called:
it is accepted, and unknown at once, as all that another life may have done. Once somebody has found out that
it was not made, `operation.retry` makes it.

A run is compensated from its newest operation to its oldest, one at a time, of those that it had when that
was asked for. It stops at the first that is not certain: whether it happened, or whether its compensation
did. How far it has come stands in the journal, so it can be taken up again, by the next process life or by
another command.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from driver.core.commands import CompensateData, RunCompensateData, ToolCallData
from driver.core.compensation import (
    UNDECLARED,
    UNKNOWN_OPERATION,
    Facts,
    Needless,
    Refused,
    arguments,
    decide,
)
from driver.core.contracts import Contract, ToolName
from driver.core.identity import args_digest, compensation_id, content_digest, operation_id
from driver.core.probes import scope
from driver.core.strictjson import dumps_compact
from driver.engine.commands import Done, Effects, Given, Receipt
from driver.engine.dispatcher import Dispatcher
from driver.engine.endings import draft
from driver.engine.errands import Errand, Postponed
from driver.engine.history import arguments_of, is_of_earlier_history
from driver.engine.lookalikes import Lookalikes
from driver.engine.news import until
from driver.engine.proof import asked_for, compensation_of, evident
from driver.engine.queue import Waiting
from driver.engine.retrying import standing
from driver.engine.surroundings import Surroundings
from driver.engine.withheld import Fingerprints
from store.events import CommandAccepted, CommandCompleted, CommandFailed, Draft, OperationUnknown
from store.lifecycle import ENDED, Effect
from store.records import (
    COMPENSATION_PREFIX,
    JsonObject,
    JsonValue,
    OperationFilter,
    OperationId,
    OperationRecord,
    Origin,
)
from store.transaction import Transaction
from store.view import View

ROLLED_BACK: Final = (
    "what it takes back is older than the rollback of the journal, so it may have been made in the time that "
    "was lost, and is not called: find out, and reconcile it; one that was not made can be retried then"
)


class Compensator:
    """Accepts compensations."""

    def __init__(self, around: Surroundings, dispatcher: Dispatcher) -> None:
        self._terms = around.terms
        self._machine = around.machine
        self._scope = around.scope
        self._limits = around.limits
        self._dispatcher = dispatcher
        self._fingerprints = Fingerprints(around.journal.key)
        self._lookalikes = Lookalikes(around.journal.key)

    def begin(
        self, tx: Transaction, forward: OperationRecord, *, certain: bool = False
    ) -> "Waiting | Lost | Needless | Refused":
        """Accept the compensation of an operation that has none, and return where it waits; or why not.

        `certain`: only what is proven to have happened is compensated.
        """
        found = self._plan(tx, forward, certain=certain)
        if not isinstance(found, _Plan):
            return found
        place = self._accept(tx, forward, found)
        if not found.contract.write or not is_of_earlier_history(tx, forward):
            return place
        lost = OperationUnknown(reason="rolled_back", phase=None, attempts=0, message=ROLLED_BACK)
        tx.append(draft(place.operation_id, lost))
        return Lost(_compensation_of(tx, forward.operation_id))

    def is_due(self, view: View, forward: OperationRecord) -> bool:
        """Whether an operation would be compensated, were that asked for now."""
        return compensation_of(view, forward.operation_id) is None and isinstance(
            self._plan(view, forward, certain=False), _Plan
        )

    def _plan(self, view: View, forward: OperationRecord, *, certain: bool) -> "_Plan | Needless | Refused":
        contract = self._terms.lookup(forward.tool)
        declared = contract.compensate
        known = evident(view, forward, self._terms, self._machine)
        decision = decide(
            Facts(
                state=forward.state,
                asked=asked_for(view, forward.operation_id) is not None,
                # a walk looks first at what happened, and then at whether it can be taken back
                declared=declared is not None or certain,
                proven=known.proven.effect,
                lands_until=known.lands_until,
                now=view.now,
                certain=certain,
            )
        )
        if isinstance(decision, Refused | Needless):
            return decision
        if declared is None:
            return UNDECLARED
        seen = scope(forward.operation_id, arguments_of(view, forward), forward.receipt)
        filled = arguments(declared, seen)
        if isinstance(filled, Refused):
            return filled
        tool = str(ToolName(ToolName.parse(forward.tool).provider, declared.tool))
        contract = self._terms.lookup(tool)
        resend = self._lookalikes.resend(
            view, forward.run_id, ToolCallData(tool=tool, arguments=filled), contract
        )
        if resend is not None:
            return resend
        asks = contract.approval == "required"
        if asks and self._dispatcher.unapproved >= self._limits.approvals_max:
            return Refused("overloaded", "too many calls wait for a person's approval (driver.approvals_max)")
        return _Plan(tool, filled, contract)

    def _accept(self, tx: Transaction, forward: OperationRecord, plan: "_Plan") -> Waiting:
        contract = plan.contract
        digester = self._fingerprints.digester(contract)
        command_id = compensation_id(forward.operation_id)
        data: JsonObject = {"tool": plan.tool, "arguments": plan.arguments}
        identity = operation_id(self._scope, forward.run_id, command_id)
        accepted = CommandAccepted(
            kind=ToolCallData.KIND,
            content_digest=content_digest(ToolCallData.KIND, forward.run_id, data, digester),
            tool=plan.tool,
            args_digest=args_digest(plan.tool, plan.arguments, digester),
            write=contract.write,
            identical=contract.identical,
        )
        tx.append(
            Draft(
                data=accepted,
                run_id=forward.run_id,
                command_id=command_id,
                operation_id=identity,
                origin=Origin.LOCAL,
                payload=dumps_compact(data).encode(),
                redact=() if contract.redact is None else contract.redact.paths,
            )
        )
        return Waiting(
            operation_id=identity,
            expires_at=None,
            traceparent=None,
            unapproved=contract.approval == "required",
        )


def _compensation_of(view: View, forward: OperationId) -> OperationRecord:
    found = compensation_of(view, forward)
    assert found is not None, "it was accepted"
    return found


@dataclass(frozen=True, slots=True)
class Lost:
    """The compensation may have been made in the time that a rollback has lost: it is unknown."""

    compensation: OperationRecord


@dataclass(frozen=True, slots=True)
class _Plan:
    """The call that takes an effect back."""

    tool: str
    arguments: JsonObject
    contract: Contract
    """Of the compensating tool."""


class CompensateCommand:
    """Accepts and carries out `operation.compensate`."""

    def __init__(self, around: Surroundings, compensator: Compensator) -> None:
        self._journal = around.journal
        self._compensator = compensator

    def accept(self, tx: Transaction, given: Given, data: CompensateData) -> Done:
        """Accept the compensation beside its command, and let it wait for its turn; or say why not."""
        del given
        forward = tx.operation(data.operation_id)
        if forward is None:
            return Done(receipt=_failed(UNKNOWN_OPERATION))
        existing = compensation_of(tx, data.operation_id)
        if existing is not None:
            return Done(receipt=_ended(data.operation_id, existing))
        made = self._compensator.begin(tx, forward)
        match made:
            case Refused():
                return Done(receipt=_failed(made))
            case Needless():
                return Done(receipt=_needless(data.operation_id))
            case Lost(compensation=compensation):
                return Done(receipt=_ended(data.operation_id, compensation))
            case Waiting():
                return Done(receipt=None, effects=Effects(waiting=(made,)))

    async def carry(self, errand: Errand) -> Receipt:
        """Return the receipt once the compensation has ended."""
        data = errand.data
        assert isinstance(data, CompensateData), "an errand has the data of its kind"

        def look(view: View) -> Receipt | None:
            return _ended(data.operation_id, _compensation_of(view, data.operation_id))

        command_id = compensation_id(data.operation_id)
        found: Receipt = await until(self._journal, look, lambda event: event.command_id == command_id)
        return found


@dataclass(frozen=True, slots=True)
class _Wait:
    """A compensation has not ended; `place` where it is new."""

    compensation: OperationRecord
    place: Waiting | None = None


@dataclass(frozen=True, slots=True)
class _Stop:
    """An operation, or its compensation, is not certain."""

    operation_id: OperationId
    why: Refused
    compensation: OperationId | None = None


@dataclass(frozen=True, slots=True)
class _Next:
    """Everything down to here is done. `before` is where the older ones begin; None where there are none."""

    before: int | None


_Step: TypeAlias = _Wait | _Stop | _Next


@dataclass(slots=True)
class _Account:
    """What came of the operations so far, newest first."""

    compensated: list[JsonValue] = field(default_factory=list["JsonValue"])
    not_compensable: list[JsonValue] = field(default_factory=list["JsonValue"])


class RunCompensateCommand:
    """Accepts and carries out `run.compensate`."""

    def __init__(self, around: Surroundings, dispatcher: Dispatcher, compensator: Compensator) -> None:
        self._journal = around.journal
        self._posture = around.posture
        self._terms = around.terms
        self._dispatcher = dispatcher
        self._compensator = compensator

    def accept(self, tx: Transaction, given: Given, data: RunCompensateData) -> Done:
        """Leave it open."""
        del tx, given, data
        return Done(receipt=None)

    async def carry(self, errand: Errand) -> Receipt:
        """Compensate the operations of the run one after the other; return how far that came.

        Raises `Postponed` where the daemon may not act any more.
        """
        account = _Account()
        before: int | None = None
        while True:
            step: _Step = await self._journal.transact(
                partial(self._step, errand=errand, before=before, account=account)
            )
            match step:
                case _Wait(compensation=compensation, place=place):
                    if place is not None:
                        self._dispatcher.enqueue([place])
                    await self._ended(compensation)
                case _Next(before=None):
                    return _told(errand, account, None)
                case _Next(before=before):
                    pass
                case _Stop():
                    return _told(errand, account, step)

    async def _ended(self, compensation: OperationRecord) -> None:
        def look(view: View) -> OperationRecord | None:
            found = view.operation(compensation.operation_id)
            return found if found is not None and found.state in ENDED else None

        await until(self._journal, look, lambda event: event.operation_id == compensation.operation_id)

    def _step(self, tx: Transaction, *, errand: Errand, before: int | None, account: _Account) -> _Step:
        """Look at the next older operation, and accept its compensation if that is due."""
        page = tx.operations(OperationFilter(run_id=errand.run_id), before, 1)
        for forward in page.items:
            own = forward.command_id.startswith(COMPENSATION_PREFIX)
            if forward.write and not own and forward.accepted_seq < errand.accepted_seq:
                step = self._look(tx, forward, account)
                if step is not None:
                    return step
        return _Next(page.next)

    def _look(self, tx: Transaction, forward: OperationRecord, account: _Account) -> _Wait | _Stop | None:
        """Return what keeps the walk at an operation; None where it is done, and accounted for."""
        existing = compensation_of(tx, forward.operation_id)
        if existing is not None:
            return _judged(forward, existing, account)
        if not self._posture.may_dispatch or tx.fence is not None:
            raise Postponed
        if not tx.room:
            return _Stop(forward.operation_id, Refused("no_room", "the journal has no room left"))
        made = self._compensator.begin(tx, forward, certain=True)
        match made:
            case Waiting():
                return _Wait(_compensation_of(tx, forward.operation_id), made)
            case Lost(compensation=compensation):
                return _judged(forward, compensation, account)
            case Refused(code="no_compensation_declared"):
                account.not_compensable.append(forward.operation_id)
                return None
            case Refused():
                return _Stop(forward.operation_id, made)
            case Needless():
                return None


def _judged(
    forward: OperationRecord, compensation: OperationRecord, account: _Account
) -> _Wait | _Stop | None:
    if compensation.state not in ENDED:
        return _Wait(compensation)
    if compensation.effect is Effect.OCCURRED and not compensation.best_effort:
        account.compensated.append(
            {
                "operation_id": forward.operation_id,
                "compensation_operation_id": compensation.operation_id,
            }
        )
        return None
    message = (
        f"its compensation is {compensation.state}, and whether it happened is {compensation.effect}: settle "
        "it, or retry it, then compensate the run again"
    )
    return _Stop(
        forward.operation_id, Refused("compensation_not_certain", message), compensation.operation_id
    )


def _told(errand: Errand, account: _Account, stop: _Stop | None) -> CommandCompleted:
    stopped: JsonValue = None
    if stop is not None:
        stopped = {
            "operation_id": stop.operation_id,
            "compensation_operation_id": stop.compensation,
            "code": stop.why.code,
            "message": stop.why.message,
        }
    return CommandCompleted(
        result={
            "run_id": errand.run_id,
            "complete": stop is None,
            "compensated": account.compensated,
            "not_compensable": account.not_compensable,
            "stopped_at": stopped,
        }
    )


def _ended(forward: OperationId, compensation: OperationRecord) -> CommandCompleted | None:
    if compensation.state not in ENDED:
        return None
    told = standing(compensation)
    told |= {"operation_id": forward, "compensation_operation_id": compensation.operation_id}
    return CommandCompleted(result=told)


def _needless(forward: OperationId) -> CommandCompleted:
    result: JsonObject = {
        "operation_id": forward,
        "compensation_operation_id": None,
        "state": None,
        "effect": Effect.NONE.value,
        "best_effort": False,
        "reason": "nothing_to_compensate",
    }
    return CommandCompleted(result=result)


def _failed(refused: Refused) -> CommandFailed:
    return CommandFailed(code=refused.code, message=refused.message)
