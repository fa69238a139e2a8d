"""The steps of a call that the journal records: its intent, and its end. Each is one unit of the journal.

Part of `driver.engine`; imports `driver.core`, `store` and its own siblings. What surrounds them is
`driver.engine.dispatcher`'s.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from driver.core.approval import Ask, TooLate, Use, UseFacts, look
from driver.core.attempts import NotSent, Phase
from driver.core.conclusion import Attempted
from driver.core.dispatch import Go, LookFacts, last_look
from driver.core.retry import Again, Enough, can_be_bettered
from driver.core.revival import objection as rule
from driver.engine.approvals import ask, newest_request
from driver.engine.assignments import intent, may_begin
from driver.engine.endings import end_at_rest, end_attempt, forbidden
from driver.engine.lookalikes import Lookalikes
from driver.engine.machine import Machine
from driver.engine.posture import Posture
from driver.engine.proof import facts, is_revived
from driver.engine.reports import unsent
from driver.engine.rolled_back import end_rolled_back
from driver.engine.running import Later, Over, Running, Started, Step
from driver.engine.terms import Terms
from store.events import OperationNotExecuted
from store.lifecycle import Effect
from store.records import OperationRecord
from store.transaction import Transaction
from store.view import View


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps, as the daemon stands towards new effects."""

    posture: Posture
    machine: Machine
    terms: Terms
    lookalikes: Lookalikes
    new_id: Callable[[], str]

    def refusal(self, running: Running, now: datetime) -> OperationNotExecuted | None:
        """Return why the call must not be sent; None where it may. The last look, and the one before it."""
        verdict = last_look(
            LookFacts(
                now=now,
                expires_at=running.assignment.expires_at,
                deadline_at=running.deadline_at,
                cancelled=running.cancelled,
                draining=self.posture.draining,
                fenced=self.posture.fence is not None,
            )
        )
        return None if isinstance(verdict, Go) else OperationNotExecuted(reason=verdict.reason)

    def begin(self, tx: Transaction, running: Running, objection: NotSent | None) -> Step:
        """Record the intent of the attempt, or why there is none. `objection` is the provider's."""
        assignment = running.assignment
        record = tx.operation(assignment.operation_id)
        if record is None or not may_begin(tx, record, assignment.revived_by):
            return Over()
        revived = is_revived(tx, record)
        if objection is not None and not revived:
            return self._unprepared(tx, running, record, unsent(objection, assignment.redactor))
        refused = self.refusal(running, tx.now)
        if refused is None and running.interrupted and self.posture.may_dispatch:
            refused = OperationNotExecuted(reason="expired")
        if refused is not None and refused.reason not in ("draining", "fenced"):
            end_at_rest(tx, record, refused)
            return Over()
        if not self.posture.may_dispatch:
            return Later(assignment.place)
        if revived:
            against = rule(facts(tx, record, self.terms, self.machine)) or self.lookalikes.of_attempt(
                tx, record, self.terms
            )
            if against is not None:
                end_at_rest(tx, record, None, against)
                return Over()
            if objection is not None:
                return self._begin_in_vain(tx, running, unsent(objection, assignment.redactor))
        elif assignment.attempt > 1 and forbidden(tx, record, assignment.contract, self.machine):
            end_at_rest(tx, record, None)
            return Over()
        return (
            self._begin_approved(tx, running, record)
            if assignment.needs_approval
            else self._start(tx, running)
        )

    def doubt(self, view: View, running: Running) -> OperationNotExecuted | None:
        """Return why an attempt that has begun must not be sent after all: earlier ones may have happened."""
        assignment = running.assignment
        record = view.operation(assignment.operation_id)
        if record is None:
            return None
        if assignment.revived_by is None:
            happened = record.effect is Effect.OCCURRED
            return _doubted("an earlier attempt turned out to have happened") if happened else None
        against = rule(facts(view, record, self.terms, self.machine, attempts=assignment.attempt - 1))
        return None if against is None else _doubted(against.message)

    def end(self, tx: Transaction, running: Running, newest: Attempted) -> Over | Later:
        """Record the end of the attempt: of its operation, or of one attempt of several."""
        assignment = running.assignment
        if end_rolled_back(tx, assignment.operation_id, newest):
            return Over("rolled_back")
        decision = end_attempt(
            tx,
            assignment.operation_id,
            assignment.contract,
            newest,
            self.machine,
            go_on=not running.cancelled and self.posture.fence is None,
        )
        match decision:
            case Again(at=at):
                return Later(replace(assignment.place, due_at=at))
            case Enough(why=why):
                return Over(why if assignment.contract.retry != "never" else None)

    def _start(self, tx: Transaction, running: Running, approval_id: str | None = None) -> Started:
        assignment = running.assignment
        started = tx.append(assignment.draft(intent(assignment, tx.now, self.machine, approval_id)))
        running.started_seq = started.seq - tx.base
        running.deadline_at = assignment.deadline(tx.now)
        return Started()

    def _begin_approved(self, tx: Transaction, running: Running, record: OperationRecord) -> Step:
        """Use the approval that there is, or ask for one."""
        assignment = running.assignment
        facts = UseFacts(
            now=tx.now,
            newest=newest_request(tx, record.operation_id),
            granted=assignment.granted,
            args_digest=assignment.args_digest,
            definition_digest=running.definition,
        )
        match look(facts):
            case Use(approval_id=approval_id):
                return self._start(tx, running, approval_id)
            case TooLate():
                end_at_rest(tx, record, OperationNotExecuted(reason="approval_expired"))
                return Over()
            case Ask():
                request = ask(tx, assignment, running.definition, self.new_id())
                return Later(replace(assignment.place, unapproved=False, granted=None, asked=request))

    def _unprepared(
        self, tx: Transaction, running: Running, record: OperationRecord, refusal: OperationNotExecuted
    ) -> Over | Later:
        """An attempt that could not be prepared is one only where another may follow it."""
        if running.assignment.contract.retry == "never" or not can_be_bettered(refusal):
            end_at_rest(tx, record, refusal)
            return Over()
        return self._begin_in_vain(tx, running, refusal)

    def _begin_in_vain(
        self, tx: Transaction, running: Running, refusal: OperationNotExecuted
    ) -> Over | Later:
        """Record an attempt that could not be prepared."""
        assignment = running.assignment
        tx.append(assignment.draft(intent(assignment, tx.now, self.machine)))
        newest = Attempted(attempt=assignment.attempt, phase=Phase.CONNECTING, outcome=refusal)
        return self.end(tx, running, newest)


def _doubted(message: str) -> OperationNotExecuted:
    return OperationNotExecuted(reason="cancelled", message=message)
