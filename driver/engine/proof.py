"""What the journal proves about an operation that has ended: whether rule R lets it have another attempt.

Part of `driver.engine`; imports `driver.core` and `store`. Works on a view, within one unit of the journal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from driver.core.contracts import Contract
from driver.core.identity import compensation_id
from driver.core.landing import ELSEWHERE
from driver.core.retry import Case
from driver.core.revival import Facts, proof
from driver.engine.history import (
    clocks,
    first_attempt,
    has_begun,
    is_of_earlier_history,
    landed_by_now,
    learned,
    runs,
)
from driver.engine.machine import Machine
from driver.engine.terms import Terms
from store.lifecycle import Effect, Judgement, Source, State
from store.records import (
    AttemptRecord,
    CommandId,
    CommandRecord,
    OperationId,
    OperationRecord,
    Timestamp,
    moment,
)
from store.view import View
from store.wanted import operation_named


def is_revived(view: View, record: OperationRecord) -> bool:
    """Whether the operation had ended before, and no attempt of it has begun since."""
    command = view.command(record.command_id)
    return command is not None and command.receipt_seq is not None and record.state is not State.STARTED


def asked_for(
    view: View, operation_id: OperationId, *, beside: CommandId | None = None
) -> CommandRecord | None:
    """Return the command, `beside` this one, that asks for an attempt which has not begun; else None."""
    record = view.operation(operation_id)
    if record is None:
        return None
    for command in view.open_retries():
        asks = command.command_id != beside and operation_of(view, command) == operation_id
        if asks and not has_begun(record, command):
            return command
    return None


def wished_for(view: View) -> Iterator[OperationRecord]:
    """Yield the operations of which another attempt was asked for that has not begun."""
    for command in view.open_retries():
        named = operation_of(view, command)
        record = None if named is None else view.operation(named)
        if record is not None and not has_begun(record, command):
            yield record


def compensation_of(view: View, forward: OperationId) -> OperationRecord | None:
    """Return the compensation of an operation; None where there is none."""
    command = view.command(compensation_id(forward))
    found = None if command is None else command.operation_id
    return None if found is None else view.operation(found)


def operation_of(view: View, command: CommandRecord) -> OperationId | None:
    """Return the operation that a command of one operation is about."""
    return operation_named(view.command_payload(command.command_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evident:
    """What stands about the first `attempts` of an operation."""

    attempts: Sequence[AttemptRecord]
    proven: Judgement
    """By all evidence but a supervisor's."""
    lands_until: datetime | None
    """Until when one of them may still land; None where none may."""


def evident(
    view: View,
    record: OperationRecord,
    terms: Terms,
    machine: Machine,
    attempts: int | None = None,
) -> Evident:
    """Return what stands about the first `attempts` of an operation, by default about all."""
    count = record.attempt_count if attempts is None else attempts
    made = view.attempts(record.operation_id)[:count]
    return Evident(
        attempts=made,
        proven=proof(learned(view, record.operation_id), made, since_seq=view.base),
        lands_until=_lands_until(view, record, made, terms, machine),
    )


def facts(
    view: View,
    record: OperationRecord,
    terms: Terms,
    machine: Machine,
    *,
    attempts: int | None = None,
    asked: bool = False,
) -> Facts:
    """Return what rule R asks about an operation, as far as its first `attempts` go."""
    contract = terms.lookup(record.tool)
    known = evident(view, record, terms, machine, attempts)
    case = Case(
        contract=contract,
        # the careful one of what was recorded and what is declared now
        write=record.write or contract.write,
        attempts=len(known.attempts),
        first=first_attempt(view, known.attempts[0]) if known.attempts else None,
        doubtful=known.proven.effect is not Effect.NONE,
        now=clocks(view, machine()),
        expires_at=None if record.expires_at is None else moment(record.expires_at),
        lands_until=known.lands_until,
    )
    return Facts(
        state=record.state,
        runs=runs(view, record),
        asked=asked,
        erased=_is_erased(view, record),
        proven=known.proven,
        guessed=record.effect is Effect.NONE and record.effect_by is Source.SUPERVISOR,
        case=case,
    )


def _is_erased(view: View, record: OperationRecord) -> bool:
    data = view.command_data(record.command_id)
    return data is None or data.body is None


def _lands_until(
    view: View, record: OperationRecord, attempts: Sequence[AttemptRecord], terms: Terms, machine: Machine
) -> datetime | None:
    """An attempt that was answered has landed, or never will; nor will one whose transport is closed."""
    contract = terms.lookup(record.tool)
    if not attempts:
        return _elsewhere_until(record.ended_at, contract) if record.reason in ELSEWHERE else None
    answered = {
        item.attempt
        for item in view.evidence(record.operation_id)
        if item.source in (Source.PROVIDER, Source.SHIM)
    }
    ends: list[datetime] = []
    if record.state is not State.SUCCEEDED and is_of_earlier_history(view, record):
        # another attempt of it may have been asked for in the life that went on
        ends.append(_elsewhere_until(view.histories()[-1].ended_at, contract))
    for item in attempts:
        if item.outcome != "unknown" or item.attempt in answered:
            continue
        if item.reason in ELSEWHERE:
            ends.append(_elsewhere_until(item.ended_at, contract))
        elif not terms.is_closed(record.tool, record.operation_id, item.attempt):
            end = landed_by_now(view, [item], contract.late_result_s, machine)
            assert end is not None, "an attempt with an outcome has ended, in this life"
            ends.append(end)
    return max(ends, default=None)


def _elsewhere_until(given_up_at: Timestamp | None, contract: Contract) -> datetime:
    """Another life may have begun it until it was superseded: it has a whole budget, and the late window."""
    assert given_up_at is not None, "it was given up here"
    return moment(given_up_at) + timedelta(seconds=contract.budget_s + contract.late_result_s)
