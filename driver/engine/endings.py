"""How attempts and operations end in the journal: what is recorded, and whether another attempt follows.

Part of `driver.engine`; imports `driver.core` and `store`. Each function is (part of) one unit of the
journal: the decision and its record are one transaction, made from what the journal holds then.
"""

import random
from dataclasses import replace

from driver.core.attempts import Phase, Report
from driver.core.conclusion import Attempted, conclude, ended
from driver.core.contracts import Contract
from driver.core.reports import judge
from driver.core.retry import Again, Enough, can_be_bettered, decide, forbid
from driver.core.revival import Refusal
from driver.engine.history import case, duration_ms, last_word, late_success, past, rests
from driver.engine.machine import Machine
from driver.engine.outcomes import late_result, outcome
from driver.engine.proof import asked_for, is_revived
from driver.engine.withheld import redactor
from store.declared import EventData
from store.events import CommandFailed, Draft, OperationNotExecuted, OperationSucceeded, OperationUnknown
from store.lifecycle import ENDED, Effect
from store.records import OperationId, OperationRecord
from store.transaction import Transaction
from store.view import View

NOT_ASKED_FOR = Enough("not_asked_for")


def end_attempt(
    tx: Transaction,
    operation_id: OperationId,
    contract: Contract,
    newest: Attempted,
    machine: Machine,
    *,
    go_on: bool,
) -> Again | Enough:
    """Record that the attempt that ran has ended: as its operation's end, or as one of several.

    `go_on`: nothing but the contract and rule R stands against another attempt.
    """
    if contract.retry == "never" and newest.attempt == 1:
        tx.append(draft(operation_id, newest.outcome))
        return NOT_ASKED_FOR
    record = tx.operation(operation_id)
    assert record is not None, "what has an attempt has a record"
    attempts = (*past(tx, record), newest)
    decision: Again | Enough = Enough("settled")
    if go_on and record.effect is not Effect.OCCURRED:
        facts = case(tx, record, contract, attempts, machine())
        decision = decide(facts, newest.outcome, random.random())  # noqa: S311 - jitter
    if isinstance(decision, Again):
        tx.append(draft(operation_id, ended(newest)))
    else:
        _end_operation(tx, record, attempts)
    return decision


def end_at_rest(
    tx: Transaction,
    record: OperationRecord,
    unsent: OperationNotExecuted | None,
    refused: Refusal | None = None,
) -> None:
    """Record the end of an operation of which no attempt runs. `unsent` says why none follows.

    One that had ended before, and of which somebody wants another attempt, is what it was: the command that
    asked for the attempt ends, for this reason or as `refused`.
    """
    if is_revived(tx, record):
        _withdraw(tx, record, refused or _refusal(unsent))
        return
    last = late_success(tx, record) or conclude(past(tx, record), unsent)
    tx.append(draft(record.operation_id, last))


def _withdraw(tx: Transaction, record: OperationRecord, refused: Refusal) -> None:
    """Record that the attempt which somebody asked for does not begin."""
    command = asked_for(tx, record.operation_id)
    if record.state not in ENDED:
        tx.append(draft(record.operation_id, last_word(tx, record)))
    if command is not None:
        failed = CommandFailed(code=refused.code, message=refused.message)
        tx.append(Draft(data=failed, command_id=command.command_id))


def _refusal(unsent: OperationNotExecuted | None) -> Refusal:
    assert unsent is not None, "an attempt that does not begin has a reason"
    message = f"the attempt did not begin ({unsent.reason}), and the operation is what it was"
    return Refusal(unsent.reason, message if unsent.message is None else f"{message}: {unsent.message}")


def forbidden(view: View, record: OperationRecord, contract: Contract, machine: Machine) -> Enough | None:
    """Return why an operation that has had attempts must not begin another now; None where it may."""
    if record.effect is Effect.OCCURRED:
        return Enough("settled")
    return forbid(case(view, record, contract, past(view, record), machine()), view.now)


def lost(attempt: int, message: str | None = None) -> Attempted:
    """Return the attempt that an earlier process life began, and whose end nobody knows: `message` is why."""
    outcome = OperationUnknown(reason="crash_window", phase=None, attempts=attempt, message=message)
    return Attempted(attempt=attempt, phase=None, outcome=outcome)


def record_late(
    tx: Transaction, operation_id: OperationId, attempt: int, report: Report, contract: Contract
) -> bool:
    """Record an answer that came after its attempt had ended. Returns whether it ended the operation.

    Between two attempts it may: what has happened is not tried again, and a last word is one.
    """
    record = tx.operation(operation_id)
    if record is None:
        return False
    ending = judge(report, Phase.ANSWERED, contract, redactor(tx, record, contract), late=True)
    data = late_result(ending, attempt=attempt)
    if data is None:
        return False
    if not rests(tx, record):
        tx.append(draft(operation_id, data))
        return False
    took_ms = duration_ms(tx, record, attempt)
    word = outcome(ending, phase=Phase.ANSWERED, attempts=attempt, duration_ms=took_ms)
    if isinstance(word, OperationSucceeded):
        of = None if attempt == record.attempt_count else attempt
        tx.append(draft(operation_id, replace(word, attempts=record.attempt_count, attempt=of)))
        return True
    tx.append(draft(operation_id, data))
    if attempt != record.attempt_count or can_be_bettered(word):
        return False
    answered = Attempted(attempt=attempt, phase=Phase.ANSWERED, outcome=word)
    tx.append(draft(operation_id, conclude((*past(tx, record)[:-1], answered))))
    return True


def draft(operation_id: OperationId, data: EventData) -> Draft:
    """Return the draft of an event of an operation, which the journal addresses."""
    return Draft(data=data, operation_id=operation_id)


def _end_operation(tx: Transaction, record: OperationRecord, attempts: tuple[Attempted, ...]) -> None:
    """Record the newest attempt's end and the operation's: one event where they are the same."""
    newest = attempts[-1]
    succeeded = isinstance(newest.outcome, OperationSucceeded)
    last = (None if succeeded else late_success(tx, record)) or conclude(attempts)
    if last != newest.outcome:
        tx.append(draft(record.operation_id, ended(newest)))
    tx.append(draft(record.operation_id, last))
