"""Fences: raised where this journal may be the wrong one, and lifted once somebody says so, durably both.

Part of `driver.engine`; imports `driver.core.signals`, `store` and its own siblings. Definition:
docs/protocol.md, section 5.

Whoever agrees to a restored backup, another history begins with that. The plane's watermark says what it
holds of this journal, and not what it has given to it: a command that was delivered after the backup was
made, and whose events nobody acknowledged, is unknown here. Under the old `journal_id` its redelivery would
pass for the first delivery; under a new one, `delivered_to` tells that another journal had it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from driver.core.signals import FenceReason
from driver.core.unfencing import StillFenced, Unfenced, Unfencing
from driver.engine.dispatcher import Dispatcher
from driver.engine.posture import Posture
from driver.engine.seen_through import seen_through
from store.events import Draft, DriverFenced, DriverUnfenced
from store.journal import Journal
from store.marks import SUPERSEDED, TOLD
from store.records import Fence, JournalId, OperationId
from store.rollback import accept_rollback as begin_again
from store.transaction import Transaction

log = structlog.get_logger(__name__)

ROLLBACKS: Final = frozenset({FenceReason.ROLLED_BACK, FenceReason.FORKED, FenceReason.CONFLICT})
"""The reasons that say that the plane knows another history: going on with this one cannot work."""
PLANE: Final = "plane"
"""Who lifted a fence, where the plane confirmed the history of a restored backup."""


@dataclass(frozen=True, slots=True)
class _Lifted:
    """What was recorded, and the operations that ended with it."""

    result: Unfenced
    unknown: tuple[OperationId, ...] = ()


_NOT_FENCED: Final = StillFenced(
    code="not_fenced", message="the daemon is not fenced: there is nothing to lift"
)

_STARTING: Final = StillFenced(code="not_ready", message="the daemon is starting: try again in a moment")


class Fences:
    """Keeps journal, posture and dispatcher of one mind about the fence."""

    def __init__(
        self,
        *,
        journal: Journal,
        posture: Posture,
        dispatcher: Dispatcher,
        new_id: Callable[[], str],
        pump: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._posture = posture
        self._dispatcher = dispatcher
        self._new_id = new_id
        self._pump = pump

    async def resume(self) -> None:
        """Take up the fence that the journal has: one that it was given by a backup is told of now."""
        self._posture.fence = fence = await self._journal.read(lambda view: view.fence)
        if fence is None:
            return
        log.error("fenced", reason=fence.reason, detail=fence.detail)
        if fence.reason == FenceReason.RESTORED:
            await self._journal.transact(_tell)

    async def raise_fence(self, reason: str, detail: str) -> None:
        """Stop acting, durably: returns once the fence is fsynced. What runs goes on, and is recorded.

        A fence that stands stays, unless it was for a restored backup that turns out to be something worse; a
        takeover is remembered beside it. Cancelled, it ends no sooner.
        """
        log.error("fenced", reason=reason, detail=detail)

        def raise_in(tx: Transaction) -> Fence | None:
            _raise(tx, reason, detail)
            # from here on, not from the fsync on: a unit of the same commit must begin nothing more
            self._posture.fence = tx.fence
            return tx.fence

        fence = await seen_through(self._journal.transact(raise_in))
        # once more: whoever has lifted an earlier fence in the same commit may have cleared it meanwhile
        self._posture.fence = fence
        self._dispatcher.fenced()

    async def lift(self, *, accept_rollback: bool, actor: str) -> Unfencing:
        """Let the daemon act again, durably, where that is what the fence's reason asks for.

        After a rollback (`accept_rollback`) or a restored backup that is in another history, which begins in
        the same unit. Nothing is dispatched before the plane has confirmed the history anew. Cancelled, it
        ends no sooner.
        """
        if not self._posture.ready:
            return _STARTING
        new_id = JournalId(self._new_id())
        return await self._lift(
            lambda tx: _lift(tx, new_id, accept_rollback=accept_rollback, actor=actor), actor
        )

    async def agree(self) -> None:
        """Begin another history, durably: the plane knows the one that a restored backup was made of.

        Does nothing under any other fence, and where an operator was quicker.
        """
        new_id = JournalId(self._new_id())
        await self._lift(lambda tx: _agree(tx, new_id), PLANE)

    async def _lift(self, unit: Callable[[Transaction], _Lifted | StillFenced], actor: str) -> Unfencing:
        found = await seen_through(self._journal.transact(unit))
        if isinstance(found, StillFenced):
            return found
        result = found.result
        if result.previous_journal_id is not None:
            self._dispatcher.abandon(found.unknown)
        self._posture.confirmed = self._posture.alone
        self._posture.fence = None
        log.warning(
            "unfenced",
            reason=result.reason,
            actor=actor,
            journal_id=result.journal_id,
            previous_journal_id=result.previous_journal_id,
            unknown=result.unknown,
        )
        self._pump()
        return result


def _tell(tx: Transaction) -> None:
    """Record the event about a fence that was raised while nobody had the file open. Once."""
    if tx.fence is not None and tx.mark(TOLD) is None:
        tx.append(Draft(data=DriverFenced(reason=tx.fence.reason, detail=tx.fence.detail)))
        tx.set_mark(TOLD, tx.fence.reason)


def _raise(tx: Transaction, reason: str, detail: str) -> None:
    standing = tx.fence
    if standing is not None and reason == FenceReason.SUPERSEDED:
        if standing.reason != FenceReason.SUPERSEDED:
            tx.set_mark(SUPERSEDED, detail)
        return
    if standing is not None and not _outweighs(reason, standing):
        return
    tx.replace_fence(str(reason), detail)
    tx.append(Draft(data=DriverFenced(reason=str(reason), detail=detail)))


def _outweighs(reason: str, standing: Fence) -> bool:
    return standing.reason == FenceReason.RESTORED and reason in ROLLBACKS


def _lift(tx: Transaction, new_id: JournalId, *, accept_rollback: bool, actor: str) -> _Lifted | StillFenced:
    fence = tx.fence
    if fence is None:
        return _NOT_FENCED
    if accept_rollback or fence.reason == FenceReason.RESTORED:
        return _roll_back(tx, fence, new_id, actor)
    if fence.reason in ROLLBACKS:
        return StillFenced(code="rollback_not_accepted", message=_advice(fence))
    tx.lift_fence()
    tx.append(Draft(data=DriverUnfenced(reason=fence.reason, actor=actor)))
    return _Lifted(Unfenced(reason=fence.reason, journal_id=tx.journal_id))


def _agree(tx: Transaction, new_id: JournalId) -> _Lifted | StillFenced:
    fence = tx.fence
    if fence is None or fence.reason != FenceReason.RESTORED:
        return _NOT_FENCED
    return _roll_back(tx, fence, new_id, PLANE)


def _roll_back(tx: Transaction, fence: Fence, new_id: JournalId, actor: str) -> _Lifted:
    found = begin_again(tx, new_id, reason=fence.reason, actor=actor)
    result = Unfenced(
        reason=fence.reason,
        journal_id=new_id,
        previous_journal_id=found.previous_journal_id,
        unknown=len(found.unknown),
    )
    return _Lifted(result, found.unknown)


def _advice(fence: Fence) -> str:
    return (
        f"the daemon is fenced because the plane knows another history of this journal ({fence.reason}: "
        f"{fence.detail}): restore the newest journal, or accept the rollback with 'effectd unfence "
        "--accept-rollback', which makes everything unsettled unknown"
    )
