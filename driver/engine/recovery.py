"""What a start makes of the operations that an earlier life left open. Asks nobody: no provider, no plane.

Part of `driver.engine`; imports `driver.core` and `store`. Each page is one transaction, and a crash in the
middle ends in the same state: what was decided is not open any more, and the rest is decided the same way
again.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from driver.core.dispatch import BecomeUnknown, Requeue
from driver.core.dispatch import recover as recovery
from driver.engine.announcements import announce
from driver.engine.assignments import Waiting, waiting
from driver.faults import Boundary
from store.events import Draft, DriverRecovered, OperationUnknown
from store.journal import Journal
from store.records import OperationRecord
from store.transaction import Transaction

PAGE: Final = 200
"""Operations decided in one transaction: some milliseconds of work, so that reads are not held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was left open: the operations that may still run, and how many were made `unknown`."""

    waiting: tuple[Waiting, ...]
    unknown: int


async def recover(journal: Journal, boundary: Boundary) -> Recovered:
    """Decide every open operation: not started, it waits on; started without an outcome, it is `unknown`.

    Returns once the last decision is fsynced. Cancelled, it leaves whole pages decided.
    """
    boundary("recovery.before")
    places: list[Waiting] = []
    unknown = after = 0
    while True:
        page = await journal.transact(partial(_decide, after=after))
        boundary("recovery.page")
        for record in page:
            match recovery(record.state):
                case Requeue():
                    places.append(waiting(record))
                case BecomeUnknown():
                    unknown += 1
        if len(page) < PAGE:
            break
        after = page[-1].accepted_seq
    if places or unknown:
        found = DriverRecovered(waiting=len(places), unknown=unknown)
        await journal.transact(lambda tx: announce(tx, found))
    boundary("recovery.after")
    return Recovered(waiting=tuple(places), unknown=unknown)


def _decide(tx: Transaction, *, after: int) -> tuple[OperationRecord, ...]:
    """Return one page of open operations as they were before this transaction decided them."""
    page = tx.open_operations(after, PAGE)
    for record in page:
        decision = recovery(record.state)
        if isinstance(decision, BecomeUnknown):
            lost = OperationUnknown(reason=decision.reason, phase=None, attempts=record.attempt_count)
            tx.append(
                Draft(
                    data=lost,
                    run_id=record.run_id,
                    command_id=record.command_id,
                    operation_id=record.operation_id,
                    origin=record.origin,
                )
            )
    return page
