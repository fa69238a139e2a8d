"""`operation.retry`: another attempt of an operation that has ended, with the same key, by rule R.

Part of `driver.engine`; imports `driver.core`, its own siblings and `store`.

Theory of operation
-------------------
Rule R is asked three times: in the transaction that accepts the command, which a refusal ends at once; in
the one that records the intent of the attempt; and of the evidence once more before the first byte. The
attempt itself is the dispatcher's, as any other.

What its compensation has been called for has no further attempt: the effect would come behind what takes it
back, and stand as taken back. Neither has a compensation while an attempt of what it takes back may come.
Nor has what was called for another operation, once that counts as not having happened because of it
(`store.delegation`); while an attempt is asked for, nothing is concluded about the other one.

Until its intent is recorded the operation stays as it is, and the wish for the attempt is the open command
and nothing else. Whatever withdraws the wish (a cancel, the expiry, rule R after all, a person who does not
approve) records the command's receipt in the same transaction. An intent that is newer than the command is
its own, for no other attempt may begin meanwhile: so a process life that takes the command up again knows
whether there is anything left to begin.
"""

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from driver.core.commands import RetryData
from driver.core.revival import (
    COMPENSATED,
    COMPENSATES_LANDING,
    COMPENSATES_RUNNING,
    PARENT_JUDGED,
    UNKNOWN_OPERATION,
    Refusal,
    refusal,
)
from driver.engine.commands import Done, Given, Receipt
from driver.engine.dispatcher import Dispatcher
from driver.engine.errands import Errand
from driver.engine.history import has_begun
from driver.engine.lookalikes import Lookalikes
from driver.engine.news import until
from driver.engine.proof import asked_for, compensation_of, evident, facts
from driver.engine.queue import Waiting
from driver.engine.surroundings import Surroundings
from store.events import CommandCompleted, CommandFailed
from store.lifecycle import ENDED, Effect
from store.records import (
    COMPENSATION_PREFIX,
    CommandId,
    JsonObject,
    OperationId,
    OperationRecord,
    StoredEvent,
    moment,
)
from store.transaction import Transaction
from store.view import View


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The command has its receipt."""


_Found: TypeAlias = Receipt | _Recorded


class RetryCommand:
    """Accepts and carries out the commands of this kind."""

    def __init__(self, around: Surroundings, dispatcher: Dispatcher) -> None:
        self._journal = around.journal
        self._terms = around.terms
        self._machine = around.machine
        self._dispatcher = dispatcher
        self._lookalikes = Lookalikes(around.journal.key)

    def accept(self, tx: Transaction, given: Given, data: RetryData) -> Done:
        """Refuse what rule R forbids now; leave the others open."""
        refused = self._refusal(tx, data.operation_id, given.command_id)
        if refused is None:
            return Done(receipt=None)
        return Done(receipt=CommandFailed(code=refused.code, message=refused.message))

    async def carry(self, errand: Errand) -> Receipt | None:
        """Have the attempt begun, unless it has been, and return the receipt once its operation has ended."""
        data = errand.data
        assert isinstance(data, RetryData), "an errand has the data of its kind"
        place = await self._journal.read(partial(self._place, errand=errand, operation_id=data.operation_id))
        if place is not None:
            self._dispatcher.enqueue([place])

        def concerns(event: StoredEvent) -> bool:
            return event.operation_id == data.operation_id or event.command_id == errand.command_id

        def look(view: View) -> _Found | None:
            return _outcome(view, errand, data.operation_id)

        found: _Found = await until(self._journal, look, concerns)
        return None if isinstance(found, _Recorded) else found

    def is_allowed(self, view: View, record: OperationRecord) -> bool:
        """Whether another attempt would be begun, were that asked for now."""
        return self._refusal(view, record.operation_id) is None

    def _refusal(
        self, view: View, operation_id: OperationId, asking: CommandId | None = None
    ) -> Refusal | None:
        record = view.operation(operation_id)
        if record is None:
            return UNKNOWN_OPERATION
        compensation = compensation_of(view, operation_id)
        asked = asked_for(view, operation_id, beside=asking) is not None or (
            compensation is not None and _is_under_way(view, compensation)
        )
        refused = refusal(facts(view, record, self._terms, self._machine, asked=asked))
        if refused is not None:
            return refused
        if compensation is not None and record.write and _may_have_happened(compensation):
            return COMPENSATED
        if record.write and view.idle_parent(operation_id) is not None:
            return PARENT_JUDGED
        return self._ahead(view, record) or self._lookalikes.of_attempt(view, record, self._terms)

    def _ahead(self, view: View, record: OperationRecord) -> Refusal | None:
        """Return why a compensation would overtake what it takes back; None for what does not."""
        if not record.command_id.startswith(COMPENSATION_PREFIX):
            return None
        forward = view.operation(OperationId(record.command_id.removeprefix(COMPENSATION_PREFIX)))
        if forward is None:
            return None  # it was pruned: nothing of it is under way
        if _is_under_way(view, forward):
            return COMPENSATES_RUNNING
        until = evident(view, forward, self._terms, self._machine).lands_until
        return None if until is None or view.now >= until else COMPENSATES_LANDING

    def _place(self, view: View, errand: Errand, operation_id: OperationId) -> Waiting | None:
        """Return where the operation waits for its attempt; None where it does, or that has begun."""
        record, command = view.operation(operation_id), view.command(errand.command_id)
        assert record is not None, "what has an open command is kept"
        assert command is not None, "an errand is a command"
        if record.state not in ENDED or command.receipt_seq is not None or has_begun(record, command):
            return None
        return Waiting(
            operation_id=operation_id,
            expires_at=None if record.expires_at is None else moment(record.expires_at),
            traceparent=None,
            unapproved=self._terms.lookup(record.tool).approval == "required",
            revived_by=errand.command_id,
        )


def _is_under_way(view: View, record: OperationRecord) -> bool:
    """Whether an attempt of it runs, waits, or was asked for."""
    return record.state not in ENDED or asked_for(view, record.operation_id) is not None


def _may_have_happened(compensation: OperationRecord) -> bool:
    """Whether anything but proof says that a compensation did nothing: a supervisor's word is none."""
    return compensation.effect is not Effect.NONE or compensation.best_effort


def _outcome(view: View, errand: Errand, operation_id: OperationId) -> _Found | None:
    """Return the receipt once there is one; None before."""
    record, command = view.operation(operation_id), view.command(errand.command_id)
    assert record is not None, "what has an open command is kept"
    assert command is not None, "an errand is a command"
    if command.receipt_seq is not None:
        return _Recorded()
    if record.state not in ENDED or not has_begun(record, command):
        return None
    newest = view.attempts(operation_id)[-1]
    attempt: JsonObject = {"attempt": newest.attempt, "outcome": newest.outcome, "reason": newest.reason}
    return CommandCompleted(result=standing(record) | attempt)


def standing(record: OperationRecord) -> JsonObject:
    """Return how an operation stands, as receipts say it."""
    return {
        "operation_id": record.operation_id,
        "state": record.state.value,
        "effect": record.effect.value,
        "best_effort": record.best_effort,
        "reason": record.reason,
    }
