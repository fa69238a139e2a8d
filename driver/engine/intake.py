"""Takes commands in: one transaction decides about a whole batch of deliveries, and records what was decided.

Part of `driver.engine`; imports `driver.core`, its own siblings and `store`. This is the one
place where a command enters the journal, whoever sent it.

Where a call's provider is ready and a slot is free, the intent is committed in the same transaction as the
acceptance, so that a call costs two fsyncs: this one, and the outcome's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

import structlog

from driver.core.admission import (
    Accept,
    AcceptLost,
    AdmissionFacts,
    Known,
    PlainCode,
    RefuseFinally,
    RefusePlainly,
    admit,
)
from driver.core.answers import Answer, Repeat, Reply, Silent
from driver.core.codec import render
from driver.core.commands import CommandData, InvalidData, ToolCallData
from driver.core.frames import CommandFrame, InvalidCommand, Refused, Retired
from driver.core.strictjson import dumps_compact
from driver.engine.assignments import Assignment, intent
from driver.engine.commands import NO_EFFECTS, Commands, Effects, Given
from driver.engine.dispatcher import Dispatcher
from driver.engine.erasing import leaves_nothing
from driver.engine.errands import Errand, Errands
from driver.engine.load import Coming, Load, load_of
from driver.engine.lookalikes import Lookalikes
from driver.engine.offers import Offer, Offers
from driver.engine.queue import Waiting
from driver.engine.seen_through import seen_through
from driver.engine.surroundings import Surroundings
from driver.engine.withheld import Fingerprints
from store.declared import EventData
from store.events import (
    CommandAccepted,
    CommandFailed,
    CommandRefused,
    Draft,
    OperationNotExecuted,
    OperationUnknown,
)
from store.lifecycle import Effect
from store.records import (
    CommandRecord,
    Origin,
    RunId,
    Tombstone,
    Twin,
    timestamp,
)
from store.transaction import Transaction
from store.values import light
from store.view import RESUMED_MAX, View

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What the transaction made of one delivery: the answer, and what is to be done once it is durable."""

    answer: Answer
    wait: Waiting | None = None
    start: tuple[Assignment, datetime, int] | None = None
    effects: Effects = NO_EFFECTS
    errand: Errand | None = None


class Intake:
    """Admits commands, and hands what they start to the dispatcher."""

    def __init__(
        self, around: Surroundings, dispatcher: Dispatcher, commands: Commands, errands: Errands
    ) -> None:
        self._journal = around.journal
        self._dispatcher = dispatcher
        self._commands = commands
        self._offers = Offers(around, commands.kinds, lambda: dispatcher.crowded)
        self._errands = errands
        self._coming = Coming()
        self._posture = around.posture
        self._limits = around.limits
        self._machine = around.machine
        self._boundary = around.boundary
        self._traces = around.traces
        self._fingerprints = Fingerprints(around.journal.key)
        self._lookalikes = Lookalikes(around.journal.key)
        self.refused: Counter[str] = Counter(dict.fromkeys(get_args(PlainCode), 0))
        """Refusals that nobody remembers, by code: each is there from the beginning, as a zero."""
        self._without_room = 0
        """Refusals for want of room that the log knows of."""
        self._full = False

    async def deliver(
        self, frames: Sequence[CommandFrame | InvalidCommand], origin: Origin = Origin.PLANE
    ) -> Sequence[Answer]:
        """Return the answer to each delivery, in order, once whatever it changed is fsynced.

        Cancelled, it ends no sooner, and what follows from the batch is done: what was accepted must not wait
        for the next start because whoever handed it in has gone.
        """
        self._traces.arrived(frames)
        offers = [self._offers.read(frame) for frame in frames]
        slots = self._take_slots(sum(offer.ready for offer in offers))
        started = 0
        try:
            taken, added = await seen_through(
                self._journal.transact(lambda tx: self._take_all(tx, offers, origin, slots))
            )
            self._boundary("intake.committed")
            started = sum(item.start is not None for item in taken)
        finally:
            self._traces.answered(frames)
            self._dispatcher.slots.give(slots - started)
        if self._dispatcher.runs:
            self._follow_all(taken)
        self._coming.hand_on(added)
        return [item.answer for item in taken]

    def _tell_of_room(self, taken: Sequence[_Taken]) -> None:
        """Tell the log when new work begins to be refused for want of room, and when it is taken again."""
        refused = self.refused["no_room"]
        if refused > self._without_room:
            if not self._full:
                log.warning("no_room", detail="new calls are refused: see journal.max_bytes, and the disk")
            self._full, self._without_room = True, refused
        elif self._full and any(item.start is not None or item.wait is not None for item in taken):
            log.info("room_again")
            self._full = False

    def _take_slots(self, wanted: int) -> int:
        return self._dispatcher.slots.take(wanted) if self._posture.may_dispatch else 0

    # ------------------------------------------------------------ in the transaction

    def _take_all(
        self, tx: Transaction, offers: Sequence[Offer], origin: Origin, slots: int
    ) -> tuple[list[_Taken], Load]:
        """Return what became of each, and what waits because of them."""
        taken: list[_Taken] = []
        # in this order: what is handed on meanwhile counts twice rather than not at all
        before = self._coming.load
        before += Load(
            depth=self._dispatcher.depth,
            unapproved=self._dispatcher.unapproved,
            errands=self._errands.depth,
        )
        load = before
        for offer in offers:
            item = self._take(tx, offer, origin, slots=slots, load=load)
            slots -= item.start is not None
            load += load_of(item.wait, item.errand)
            taken.append(item)
        added = load - before
        self._coming.accept(added)
        return taken, added

    def _take(self, tx: Transaction, offer: Offer, origin: Origin, *, slots: int, load: Load) -> _Taken:
        known = tx.command(offer.command_id) or tx.tombstone(offer.command_id)
        asked = offer.candidate
        if known is not None:
            asked = self._fingerprints.recognise(asked, offer.frame, offer.contract, known)
        match admit(asked, self._facts(tx, offer, known, load)):
            case Known():
                assert known is not None, "admission knows only what it was shown"
                tx.note_delivery(offer.command_id, "repeated")
                return _Taken(answer=_repeat(tx, known))
            case RefusePlainly(code, message):
                self.refused[code] += 1
                frame = Refused(command_id=offer.command_id, code=code, message=message)
                return _Taken(answer=Reply(render(frame)))
            case RefuseFinally(code, message, twin):
                data = CommandRefused(
                    code=code,
                    message=message,
                    content_digest=offer.candidate.content_digest,
                    twin_operation_id=twin,
                    resumes=_known_runs(tx, offer.candidate.data) or None,
                )
                tx.append(self._draft(offer, origin, data))
                tx.note_delivery(offer.command_id, "refused")
                return _Taken(answer=Silent())
            case AcceptLost(message):
                self._accept(tx, offer, origin)
                tx.append(self._draft(offer, origin, _lost(offer, message)))
                return _Taken(answer=Silent())
            case Accept():
                return self._accepted(tx, offer, origin, slots)

    def _accepted(self, tx: Transaction, offer: Offer, origin: Origin, slots: int) -> _Taken:
        expires_at = self._accept(tx, offer, origin)
        data = offer.candidate.data
        assert not isinstance(data, InvalidData), "what is invalid is never accepted"
        if not isinstance(data, ToolCallData):
            return self._executed(tx, offer, origin, data)
        if offer.refusal is not None:
            refused = OperationNotExecuted(reason=offer.refusal.reason, message=offer.refusal.message or None)
            tx.append(self._draft(offer, origin, refused))
            return _Taken(answer=Silent())
        assignment = self._assignment(offer, data, origin, expires_at)
        if not (offer.ready and slots > 0 and self._posture.may_dispatch):
            return _Taken(answer=Silent(), wait=assignment.place)
        started = tx.append(assignment.draft(intent(assignment, tx.now, self._machine)))
        return _Taken(answer=Silent(), start=(assignment, assignment.deadline(tx.now), started.seq - tx.base))

    def _executed(self, tx: Transaction, offer: Offer, origin: Origin, data: CommandData) -> _Taken:
        """Do a command that is no call, or leave it open as an errand."""
        assert offer.run_id is not None, "a command without a usable run is never accepted"
        given = Given(
            command_id=offer.command_id,
            run_id=offer.run_id,
            origin=origin,
            data=data,
            confirmed=self._posture.confirmed,
        )
        accepted_seq = tx.last_seq
        done = self._commands.execute(tx, given)
        if done.receipt is not None:
            tx.append(self._draft(offer, origin, done.receipt))
            return _Taken(answer=Silent(), effects=done.effects)
        errand = Errand(
            command_id=offer.command_id,
            run_id=offer.run_id,
            origin=origin,
            data=data,
            accepted_seq=accepted_seq,
        )
        return _Taken(answer=Silent(), effects=done.effects, errand=errand)

    def _accept(self, tx: Transaction, offer: Offer, origin: Origin) -> datetime | None:
        """Append the acceptance, and return when the command expires."""
        expires_at = None
        if offer.expires_in_ms is not None:
            expires_at = tx.now + timedelta(milliseconds=offer.expires_in_ms)
        data = offer.candidate.data
        if isinstance(data, ToolCallData):
            accepted = CommandAccepted(
                kind=offer.kind,
                content_digest=offer.candidate.content_digest,
                tool=data.tool,
                args_digest=offer.args_digest,
                write=offer.contract.write,
                identical=offer.contract.identical,
                expires_at=None if expires_at is None else timestamp(expires_at),
                repeat=data.repeat or None,
                resumes=data.resumes or None,
                parent_operation_id=data.parent_operation_id,
                traceparent=offer.traceparent,
            )
        else:
            accepted = CommandAccepted(kind=offer.kind, content_digest=offer.candidate.content_digest)
        payload = None if leaves_nothing(data) else dumps_compact(offer.raw).encode()
        tx.append(self._draft(offer, origin, accepted, payload=payload))
        tx.note_delivery(offer.command_id, "accepted")
        return expires_at

    def _facts(
        self, tx: Transaction, offer: Offer, known: CommandRecord | Tombstone | None, load: Load
    ) -> AdmissionFacts:
        data = offer.candidate.data
        fence = tx.fence
        if (
            known is not None
            or fence is not None
            or not isinstance(data, ToolCallData)
            or offer.run_id is None
        ):
            return self._plain_facts(tx, known, load)
        run = tx.run(offer.run_id)
        runs = tx.continued(offer.run_id, data.resumes)
        assert offer.args_digest is not None, "a call has arguments"
        twins: tuple[Twin, ...] = ()
        if offer.contract.write:
            twins = self._lookalikes.twins(tx, runs, data, offer.contract, offer.args_digest)
        return AdmissionFacts(
            journal_id=tx.journal_id,
            fence=fence,
            known=known,
            draining=self._posture.draining,
            room=tx.room,
            settling_room=tx.settling_room,
            queue_depth=load.depth,
            queue_max=self._limits.queue_max,
            asks=offer.contract.approval == "required",
            unapproved=load.unapproved,
            approvals_max=self._limits.approvals_max,
            write=offer.contract.write,
            identical=offer.contract.identical,
            run_ended=run is not None and run.ended,
            run_unsettled=0 if run is None else run.unsettled,
            run_unsettled_max=self._limits.run_unsettled_max,
            unknown_resumes=tuple(name for name in data.resumes if tx.run(name) is None),
            runs_max=RESUMED_MAX if len(runs) > RESUMED_MAX + 1 else None,
            twins=twins,
        )

    def _plain_facts(
        self, tx: Transaction, known: CommandRecord | Tombstone | None, load: Load
    ) -> AdmissionFacts:
        return AdmissionFacts(
            journal_id=tx.journal_id,
            fence=tx.fence,
            known=known,
            draining=self._posture.draining,
            room=tx.room,
            settling_room=tx.settling_room,
            queue_depth=max(load.depth, load.errands),
            errands=load.errands,
            queue_max=self._limits.queue_max,
        )

    # ------------------------------------------------------------ after the fsync

    def _follow_all(self, taken: Sequence[_Taken]) -> None:
        for item in taken:
            self._follow(item)
        self._dispatcher.pump()
        self._tell_of_room(taken)

    def _follow(self, item: _Taken) -> None:
        if item.start is not None:
            self._dispatcher.run_started(*item.start)
        if item.wait is not None:
            self._dispatcher.enqueue([item.wait])
        if item.effects.waiting:
            self._dispatcher.enqueue(item.effects.waiting)
        if item.errand is not None:
            self._errands.take(item.errand)
        for ended in item.effects.ended:
            self._dispatcher.forget(ended)
        for running in item.effects.cancelling:
            self._dispatcher.cancel(running)
        for approved, approval_id in item.effects.granted:
            self._dispatcher.grant(approved, approval_id)

    # ------------------------------------------------------------ small parts

    def _assignment(
        self, offer: Offer, data: ToolCallData, origin: Origin, expires_at: datetime | None
    ) -> Assignment:
        assert offer.run_id is not None, "a command without a usable run is never accepted"
        assert offer.operation_id is not None, "what is accepted has a usable run"
        assert offer.args_digest is not None, "a call has arguments"
        return Assignment(
            operation_id=offer.operation_id,
            command_id=offer.command_id,
            run_id=offer.run_id,
            origin=origin,
            tool=data.tool,
            arguments=data.arguments,
            args_digest=offer.args_digest,
            contract=offer.contract,
            redaction=offer.contract.redact,
            attempt=1,
            expires_at=expires_at,
            traceparent=offer.traceparent,
            needs_approval=offer.contract.approval == "required",
        )

    def _draft(self, offer: Offer, origin: Origin, data: EventData, payload: bytes | None = None) -> Draft:
        return Draft(
            data=data,
            run_id=offer.run_id,
            command_id=offer.command_id,
            # what was refused never became an operation
            operation_id=None if isinstance(data, CommandRefused) else offer.operation_id,
            origin=origin,
            payload=payload,
            redact=() if offer.contract.redact is None else offer.contract.redact.paths,
        )


def _known_runs(view: View, data: CommandData | InvalidData) -> tuple[RunId, ...]:
    """Return the runs that a call's run continues and that there are."""
    if not isinstance(data, ToolCallData):
        return ()
    return tuple(name for name in data.resumes if view.run(name) is not None)


def _lost(offer: Offer, message: str) -> EventData:
    if offer.kind == ToolCallData.KIND:
        return OperationUnknown(reason="journal_lost", phase=None, attempts=0, message=message)
    return CommandFailed(code="journal_lost", message=message)


def _repeat(view: View, known: CommandRecord | Tombstone) -> Answer:
    """What the journal said of a command, as stored; or what is left of it."""
    if isinstance(known, Tombstone):
        return _retired(view, known, kind=known.kind, seq=known.seq, effect=known.effect)
    seqs = [seq for seq in (known.accepted_seq, known.receipt_seq) if seq is not None]
    events = [view.event(seq) for seq in seqs]
    stored = tuple(event for event in events if event is not None and event.body is not None)
    # what an earlier history of this file said is not in the stream
    if len(stored) == len(seqs) and all(seq > view.base for seq in seqs):
        return Repeat(stored)
    operation = None if known.operation_id is None else view.operation(known.operation_id)
    assert known.receipt_seq is not None, "only what has a receipt is erased"
    assert known.receipt_kind is not None, "a receipt has a kind"
    effect = None if operation is None else operation.effect
    return _retired(view, known, kind=known.receipt_kind, seq=known.receipt_seq, effect=effect)


def _retired(
    view: View, known: CommandRecord | Tombstone, *, kind: str, seq: int, effect: Effect | None
) -> Answer:
    frame = Retired(
        command_id=known.command_id,
        operation_id=known.operation_id,
        kind=kind,
        effect=None if effect is None else effect.value,
        journal_id=view.journal_id if seq > view.base else view.history_of(seq).journal_id,
        seq=view.wire_seq(seq),
    )
    return Reply(render(frame))
