"""Where commands come in from outside: a desk for the link to the plane, and one for the local API.

Part of `driver.engine`; imports `driver.core` and `store`. `ControlDesk` implements `driver.link.desk.Desk`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from driver.core.answers import Answer, Done, NotDone, Reply, Requeued, Requeueing, Submission
from driver.core.frames import PROTOCOL, CommandFrame, Hello, InvalidCommand
from driver.core.signals import Opened
from driver.engine.fences import Fences
from driver.engine.intake import Intake
from driver.engine.intents import Intents
from driver.engine.posture import Posture
from store.events import CommandCompleted
from store.journal import Journal
from store.records import BootId, CommandId, JsonObject, Origin, RunId
from store.transaction import Transaction
from store.view import View
from store.wire import frame_of

log = structlog.get_logger(__name__)

LOCAL_PREFIX: Final = "local:"
"""Begins the ids of commands that were given on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this daemon is, as `hello` and `status` say it."""

    driver_id: str
    boot_id: BootId
    software: str
    inflight_max: int
    tombstone_days: int


class ControlDesk:
    """Joins the link with intake and posture. `pump` begins what may begin once the posture has changed."""

    def __init__(
        self,
        *,
        journal: Journal,
        intake: Intake,
        posture: Posture,
        pump: Callable[[], None],
        fences: Fences,
        intents: Intents,
        identity: Identity,
        capabilities: tuple[str, ...],
    ) -> None:
        self._journal = journal
        self._intake = intake
        self._pump = pump
        self._fences = fences
        self._intents = intents
        self._capabilities = capabilities
        self._posture = posture
        self._identity = identity

    async def deliver(self, frames: Sequence[CommandFrame | InvalidCommand]) -> Sequence[Answer]:
        """Return the answer to each command, once what it changed is fsynced."""
        return await self._intake.deliver(frames)

    def history_confirmed(self) -> None:
        """Let go what earlier boots accepted: the plane knows this journal as its own history."""
        self._posture.confirmed = True
        self._pump()

    async def fence(self, reason: str, detail: str) -> None:
        """Stop acting, durably: returns once the fence is fsynced. What runs goes on, and is recorded."""
        await self._fences.raise_fence(reason, detail)

    async def agree(self) -> None:
        """Let a restored journal act again, durably, in another history."""
        await self._fences.agree()

    def acknowledged(self, seq: int) -> None:
        """Let go the calls whose intent the plane holds."""
        self._intents.acknowledged(seq)

    def refused(self, seq: int) -> None:
        """End the calls whose intent the plane will never hold."""
        self._intents.refused(seq)

    async def opening(self) -> Opened:
        """Return where the daemon and its journal stand now, for the session of a socket that is open."""
        return await self._journal.read(self._opening)

    def _opening(self, view: View) -> Opened:
        fence = self._posture.fence
        return Opened(self._hello(view), None if fence is None else fence.reason, view.base)

    def _hello(self, view: View) -> Hello:
        state = self._posture.state
        return Hello(
            protocol=PROTOCOL,
            driver_id=self._identity.driver_id,
            journal_id=view.journal_id,
            boot_id=self._identity.boot_id,
            software=self._identity.software,
            capabilities=self._capabilities,
            last_seq=view.last_seq - view.base,
            acked_seq=view.acked_seq - view.base,
            unsettled=view.unsettled()[0],
            max_inflight=self._identity.inflight_max,
            tombstone_days=self._identity.tombstone_days,
            state="ready" if state == "starting" else state,
        )


class LocalDesk:
    """Takes the commands that somebody gives on this machine: they are journalled as any other."""

    def __init__(
        self, *, journal: Journal, intake: Intake, posture: Posture, new_id: Callable[[], str]
    ) -> None:
        self._journal = journal
        self._intake = intake
        self._posture = posture
        self._new_id = new_id

    async def submit(self, kind: str, run_id: RunId, data: JsonObject) -> Submission:
        """Return what became of a command, once that is fsynced. Its events go to the plane, too."""
        if not self._posture.ready:
            return _STARTING
        command_id = CommandId(f"{LOCAL_PREFIX}{self._new_id()}")
        frame = CommandFrame(command_id=command_id, run_id=run_id, kind=kind, data=data)
        (answer,) = await self._intake.deliver([frame], Origin.LOCAL)
        if isinstance(answer, Reply):
            refused = json.loads(answer.frame)
            return NotDone(code=refused["code"], message=refused["message"])
        return await self._journal.read(lambda view: _submission(view, command_id))

    async def requeue(self, seq: int) -> Requeueing:
        """Report a dead letter of this history again, once; return what came of that, once it is fsynced."""
        if not self._posture.ready:
            return _STARTING
        if self._posture.fence is not None:
            message = "the daemon is fenced, and sends nothing: see 'effectd status', then 'effectd unfence'"
            return NotDone(code="fenced", message=message)
        return await self._journal.transact(lambda tx: _requeue(tx, seq))


_STARTING: Final = NotDone(code="not_ready", message="the daemon is starting: try again in a moment")
NO_DEAD_LETTER: Final = "dead_letter_not_found"
"""What is refused where nothing was parked under that seq."""


def _requeue(tx: Transaction, seq: int) -> Requeueing:
    letter = tx.dead_letter(tx.base + seq) if 0 < seq <= tx.last_seq - tx.base else None
    if letter is None:
        message = f"no event {seq} of this journal is parked: see 'effectd dead-letters'"
        return NotDone(code=NO_DEAD_LETTER, message=message)
    if letter.requeued_as is not None:
        return Requeued(requeued_as=letter.requeued_as - tx.base, recorded=False)
    parked = tx.event(letter.seq)
    if parked is None or parked.body is None:
        message = "its content was erased: nothing is left to report again"
        return NotDone(code="content_erased", message=message)
    return Requeued(requeued_as=tx.requeue(letter.seq).seq - tx.base, recorded=True)


def _submission(view: View, command_id: CommandId) -> Submission:
    command = view.command(command_id)
    assert command is not None, "what was taken is known"
    receipt = None if command.receipt_seq is None else view.event(command.receipt_seq)
    if receipt is None or receipt.body is None:
        return Done(command_id=command_id)
    data = frame_of(receipt.body)["data"]
    if receipt.kind == CommandCompleted.KIND:
        return Done(command_id=command_id, result=data["result"])
    return NotDone(code=data["code"], message=data["message"])
