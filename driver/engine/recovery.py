"""What a start makes of the operations that an earlier life left open. Asks nobody: no provider, no plane.

Part of `driver.engine`; imports `driver.core` and `store`. Each page is one transaction, and a crash in the
middle ends in the same state: what was decided is not open any more, and the rest is decided the same way
again.
"""

import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from driver.core.dispatch import EndAttempt, Requeue
from driver.core.dispatch import recover as recovery
from driver.core.retry import Again, delay_s
from driver.engine.announcements import announce
from driver.engine.approvals import asked
from driver.engine.assignments import UnderWay, under_way
from driver.engine.endings import end_attempt, lost
from driver.engine.history import runs
from driver.engine.machine import Machine
from driver.engine.proof import asked_for, is_revived
from driver.engine.queue import Waiting
from driver.engine.terms import Terms
from driver.faults import Boundary
from store.events import CommandAccepted, DriverRecovered
from store.journal import Journal
from store.lifecycle import State
from store.records import CommandId, OperationRecord, moment
from store.transaction import Transaction
from store.view import View
from store.wire import data_of

PAGE: Final = 200
"""Operations decided in one transaction: some milliseconds of work, so that reads are not held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was left open: the operations that may still run, and how many cannot be known any more.

    `running` are undecided: their attempts may have outlived the process life that began them.
    """

    waiting: tuple[Waiting, ...]
    unknown: int
    running: tuple[UnderWay, ...] = ()


async def recover(journal: Journal, terms: Terms, machine: Machine, boundary: Boundary) -> Recovered:
    """Decide every open operation.

    Where no attempt runs, it waits on. Where one did, nobody can know what became of that: the operation is
    `unknown`, unless its contract and rule R allow another attempt, for which it waits then. Only where the
    provider's attempts survive the daemon is nothing decided: it has to be asked first.

    Returns once the last decision is fsynced. Cancelled, it leaves whole pages decided.
    """
    boundary("recovery.before")
    places: list[Waiting] = []
    running: list[UnderWay] = []
    unknown = after = 0
    while True:
        page = await journal.transact(partial(_decide, terms=terms, machine=machine, after=after))
        boundary("recovery.page")
        places += page.waiting
        running += page.running
        unknown += page.unknown
        if page.last is None:
            break
        after = page.last
    if places or unknown:
        found = DriverRecovered(waiting=len(places), unknown=unknown)
        await journal.transact(lambda tx: announce(tx, found))
    boundary("recovery.after")
    return Recovered(waiting=tuple(places), unknown=unknown, running=tuple(running))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    waiting: tuple[Waiting, ...]
    running: tuple[UnderWay, ...]
    unknown: int
    last: int | None
    """Where the next page begins; None where there is none."""


def _decide(tx: Transaction, *, terms: Terms, machine: Machine, after: int) -> _Page:
    """Decide one page of open operations."""
    page = tx.open_operations(after, PAGE)
    found = [_recovered(tx, record, terms, machine) for record in page]
    return _Page(
        waiting=tuple(item for item in found if isinstance(item, Waiting)),
        running=tuple(item for item in found if isinstance(item, UnderWay)),
        unknown=found.count(None),
        last=page[-1].accepted_seq if len(page) == PAGE else None,
    )


def _recovered(
    tx: Transaction, record: OperationRecord, terms: Terms, machine: Machine
) -> Waiting | UnderWay | None:
    """Return where the operation waits from now on, or which attempt may run on; None where it has ended."""
    contract = terms.lookup(record.tool)
    place = Waiting(
        operation_id=record.operation_id,
        expires_at=None if record.expires_at is None else moment(record.expires_at),
        traceparent=_traceparent(tx, record),
    )
    match recovery(record.state, runs=runs(tx, record)):
        case Requeue() if record.state is State.STARTED:
            return replace(place, due_at=_due_at(tx, record, terms))
        case Requeue():
            # a request that nobody decided waits on as it is; a grant that was not used is asked for again
            request = asked(tx, record.operation_id)
            needed = contract.approval == "required" or record.state is State.AWAITING_APPROVAL
            place = replace(place, asked=request, unapproved=needed and request is None)
            return replace(place, revived_by=_revived_by(tx, record))
        case EndAttempt():
            running = under_way(tx, record, place, terms)
            if running is not None:
                return running
            newest = lost(record.attempt_count)
            decision = end_attempt(tx, record.operation_id, contract, newest, machine, go_on=True)
            return replace(place, due_at=decision.at) if isinstance(decision, Again) else None


def _traceparent(view: View, record: OperationRecord) -> str | None:
    """Return the trace context that the operation's command came with."""
    accepted = view.event(record.accepted_seq)
    if accepted is None or accepted.body is None:
        return None
    found = data_of(accepted)
    return found.traceparent if isinstance(found, CommandAccepted) else None


def _revived_by(view: View, record: OperationRecord) -> CommandId | None:
    """Return the command that asks for an attempt for which a person is asked; None for a first one."""
    command = asked_for(view, record.operation_id) if is_revived(view, record) else None
    return None if command is None else command.command_id


def _due_at(view: View, record: OperationRecord, terms: Terms) -> datetime:
    """When an operation between two attempts may have the next: the wait that it was in begins again."""
    newest = view.attempts(record.operation_id)[-1]
    assert newest.ended_at is not None, "no attempt runs"
    backoff_s = terms.lookup(record.tool).retry_backoff_s
    wait_s = delay_s(backoff_s, newest.attempt, random.random())  # noqa: S311 - jitter
    return moment(newest.ended_at) + timedelta(seconds=wait_s)
