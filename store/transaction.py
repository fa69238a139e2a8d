"""What can be written to the journal: events, and the little that no event says.

Part of `store`; imports its own modules. A `Transaction` is a `View` that also writes, handed to one unit of
a group commit. All that it wrote is durable when `Journal.transact` returns, or none of it is there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from store import consequences, erasure, pieces
from store.batches import Batches
from store.cuts import stripped
from store.declared import EventData
from store.erasure import BEGIN, RunErasure
from store.errors import ImpossibleEvent
from store.events import (
    CommandAccepted,
    CommandCompleted,
    CommandFailed,
    CommandRefused,
    Draft,
    OperationStarted,
)
from store.head import row_digest
from store.lifecycle import IllegalMove, advance
from store.located import CommandRow, OperationRow
from store.marks import SUPERSEDED, TOLD
from store.naming import on_wire
from store.paths import as_paths, as_text
from store.projection import MOVING
from store.records import (
    TOOL_CALL,
    CommandId,
    Fence,
    OperationId,
    Origin,
    RunId,
    Side,
    StoredEvent,
    TriageRecord,
)
from store.sealing import Address, Sealed, Terms, key_of, seal
from store.tables import (
    RUN_ERASE,
    Place,
    end_run,
    find_command,
    find_operation,
    project_again,
    project_command,
    project_new_command,
    project_operation,
    project_run,
    restates,
)
from store.view import DELIVERIES_MAX, View
from store.wire import MEMBERS, frame_of, from_json, with_members


class Transaction(View):
    """One unit of a group commit. A unit that raises leaves nothing behind."""

    __slots__ = ("_batches", "_following", "_terms", "_touched", "appended", "at")

    def __init__(self, ledger: Batches, terms: Terms) -> None:
        super().__init__(ledger, terms.now, has_room=terms.has_room)
        self.at: Final = terms.at
        """The same time as it is recorded."""
        self._terms: Final = terms
        self._touched = False
        self._following: Final[list[Iterator[Draft]]] = []
        """What follows from events that are recorded, that from the newest one last."""
        self._batches: Final = ledger
        ledger.begin()
        self.appended: Final[list[StoredEvent]] = []
        """What this unit has recorded so far, in order."""

    @property
    def settling_room(self) -> bool:
        """Whether there is space, at this moment, for what settles old work: it may use the reserve."""
        return self._has_room() or self._terms.may_settle()

    def append(self, draft: Draft) -> StoredEvent:
        """Record an event and what follows from it, and return it as it will be sent.

        Assigns `seq`, `at`, `terminal`, `supersedes` and `chain`; an operation's event gets the run, command
        and origin of its operation. An event longer than a frame may be is cut once, here (`store.cuts`); its
        whole result goes to the payloads, while there is room. One that no cut makes short enough is recorded
        all the same, and the link parks it. Raises `IllegalMove` or `ImpossibleEvent` before anything
        is written: both are bugs of ours.
        """
        match draft.data:
            case CommandAccepted() | CommandRefused() as data:
                return self._append_new_command(draft, data)
            case CommandCompleted() | CommandFailed() as data:
                return self._append_command(draft, data)
            case data if data.KIND.startswith("operation."):
                return self._append_operation(draft)
            case _:
                sealed = self._seal(draft, draft.data, Address.of(draft), terminal=False)
                return self._insert(sealed, project_run(self._write(), sealed.fact))

    def acknowledge(self, seq: int) -> None:
        """Set the watermark: the plane holds every event up to `seq`.

        It may also go back, where the plane says so.
        """
        if not self.base <= seq <= self.last_seq:
            raise ImpossibleEvent("ack", f"seq {seq} is outside {self.base} to {self.last_seq}")
        ledger = self._write()
        ledger.head = replace(ledger.head, acked_seq=seq)

    def park(self, seq: int, code: str, message: str) -> None:
        """Make an event a dead letter: kept, and left out of the stream. Parking it again changes nothing."""
        if self.chain_at(seq) is None or seq == 0:
            raise ImpossibleEvent(kind="dead letter", problem=f"there is no event {seq}")
        at = self.at
        digest = row_digest(seq, code, message, at, None)
        self._write().execute("insert_dead_letter", (seq, code, message, at, digest))

    def requeue(self, seq: int) -> StoredEvent:
        """Report a dead letter again, once, as a new event that changes nothing but the stream; return it.

        Raises `ImpossibleEvent` where it is none, was requeued already, or has been erased.
        """
        row = self.ledger.execute("dead_letter", (seq,)).fetchone()
        parked = self.event(seq)
        if row is None or row[-1] is not None or parked is None or parked.body is None:
            raise ImpossibleEvent("requeueing", f"event {seq} is no dead letter that can be requeued")
        frame = frame_of(parked.body)
        data = from_json(parked.kind, frame["data"])
        named = replace(data, requeue_of=self.wire_seq(seq))
        address = Address(parked.run_id, parked.command_id, parked.operation_id, Origin(frame["origin"]))
        draft = Draft(data=named, best_effort=frame["best_effort"], redact=self._withheld(parked))
        sealed = self._seal(draft, named, address, terminal=False)
        ledger = self._write()
        run, command, operation = ledger.execute("event_place", (seq,)).fetchone()
        again = replace(sealed, event=replace(sealed.event, requeue_of=seq))
        event = self._insert(again, Place(run=run, command=command, operation=operation))
        digest = row_digest(seq, *row[:-1], event.seq)
        ledger.execute("set_requeued", (event.seq, digest, seq))
        return event

    def _withheld(self, event: StoredEvent) -> tuple[str, ...]:
        """Return what was withheld of the call that an event belongs to."""
        row = None if event.operation_id is None else find_operation(self.ledger, event.operation_id)
        return () if row is None else self._redacted_before(row.record.accepted_seq)

    def note_delivery(self, command_id: CommandId, answer: str) -> None:
        """Record that a command arrived, and what it was answered.

        The newest `DELIVERIES_MAX` are kept; a command that the journal does not know leaves no trace.
        """
        command = self._batches.rowid_of_command(command_id)
        if command is None:
            return
        at = self.at
        ledger = self._write()
        ledger.write("insert_delivery", (command, at, answer, row_digest(command, at, answer)))
        if not ledger.is_first_delivery(command):
            ledger.write("trim_deliveries", (command, DELIVERIES_MAX))

    def set_triage(self, triage: TriageRecord) -> None:
        """Record how the triage of a run stands: before a model is asked, and when that came to nothing."""
        digest = row_digest(triage.run_id, triage.attempts, triage.not_before)
        values = (triage.attempts, triage.not_before, digest, triage.run_id)
        self._write().execute("set_triage", values)

    def end_triage(self, run_id: RunId) -> None:
        """Forget what was tried: there is a verdict."""
        self._write().execute("end_triage", (run_id,))

    def note_observation(self, operation_id: OperationId, attempt: int, side: Side, text: str) -> None:
        """Record what a reading command printed around an attempt. The first word about each side stands."""
        row = find_operation(self.ledger, operation_id)
        if row is None:
            raise ImpossibleEvent(kind="observation", problem=f"there is no operation {operation_id}")
        at = self.at
        digest = row_digest(row.id, attempt, side, at, text)
        self._write().execute("insert_observation", (row.id, attempt, side, at, text, digest))

    def raise_fence(self, reason: str, detail: str) -> None:
        """Stop the daemon from acting, durably. A fence that stands already stays as it is."""
        if self.fence is None:
            self.replace_fence(reason, detail)

    def replace_fence(self, reason: str, detail: str) -> None:
        """Stop the daemon from acting, durably, for this reason, whatever fence stands."""
        ledger = self._write()
        fence = Fence(reason=reason, detail=detail, at=self.at)
        ledger.head = replace(ledger.head, fence=fence)

    def lift_fence(self) -> None:
        """Let the daemon act again; what was marked beside the fence is forgotten with it."""
        ledger = self._write()
        ledger.head = replace(ledger.head, fence=None)
        for name in (SUPERSEDED, TOLD):
            self.clear_mark(name)

    def set_mark(self, name: str, detail: str) -> None:
        """Remember something beside the fence. A mark that stands already stays as it is."""
        at = self.at
        self._write().execute("set_mark", (name, detail, at, row_digest(name, detail, at)))

    def clear_mark(self, name: str) -> None:
        """Forget a mark, if it stands."""
        if self.mark(name) is not None:
            self._write().execute("delete_mark", (name,))

    def announce_frame_bytes_max(self, value: int) -> None:
        """Remember the longest frame that the plane takes: later events are cut to it."""
        if value != self.plane_frame_bytes_max:
            ledger = self._write()
            ledger.head = replace(ledger.head, plane_frame_bytes_max=value)

    def erase_run(self, run_id: RunId, so_far: RunErasure = BEGIN) -> RunErasure:
        """Erase arguments, results and notes of the run's settled and acknowledged operations: a page of it.

        Returns how far that is, to be handed in with the next page. What it names goes with this commit and
        the next ones: see `vanishes`.
        """
        ledger = self._write()
        row = ledger.execute("run", (run_id,)).fetchone()
        return replace(so_far, after=None) if row is None else erasure.demand(ledger, row[0], so_far)

    def vanishes(self) -> bool:
        """Whether all that was to be erased is in no file any more once this unit is durable.

        Where it is not, to ask again in another unit is what erases more of it. A backup that is being made
        keeps the `-wal` as it is until then.
        """
        ledger = self._write()
        if not erasure.goes_at_once(ledger):
            return False
        ledger.vanishing = True
        return True

    def set_walk(self, command_id: CommandId, walk: RunErasure) -> None:
        """Remember how far the erasure has come that a command asked for."""
        self._write().execute("set_walk", erasure.walk_values(command_id, walk))

    def end_run(self, run_id: RunId, outcome: str | None) -> None:
        """Let the run take no more calls. The receipt of a `run.end` does the same by itself."""
        end_run(self._write(), run_id, outcome)

    def link_runs(self, run_id: RunId, resumes: RunId) -> None:
        """Record that a run continues another one. An acceptance with `resumes` does the same by itself."""
        self._write().execute("link_runs", (resumes, run_id))

    # ------------------------------------------------------------ one method for each family of events

    def _append_new_command(self, draft: Draft, data: CommandAccepted | CommandRefused) -> StoredEvent:
        if draft.command_id is None or (draft.run_id is None and isinstance(data, CommandAccepted)):
            raise ImpossibleEvent(data.KIND, "it names no command or no run")
        known = find_command(self.ledger, draft.command_id)
        if self._is_taken(draft.command_id, known):
            raise ImpossibleEvent(data.KIND, f"the command {draft.command_id} is known already")
        if isinstance(data, CommandAccepted) and data.tool is not None:
            self._check_call(draft, data, known)
        elif draft.operation_id is not None and find_operation(self.ledger, draft.operation_id) is None:
            raise ImpossibleEvent(data.KIND, f"there is no operation {draft.operation_id}")
        sealed = self._seal(draft, data, Address.of(draft), terminal=data.TERMINAL)
        if known is not None:
            return self._insert(sealed, project_again(self._write(draft), sealed.fact, data, known))
        event = self._insert(sealed, project_new_command(self._write(draft), sealed.fact, data).place)
        if isinstance(data, CommandAccepted) and data.parent_operation_id is not None:
            self._follow(consequences.of_call(self.ledger, data.parent_operation_id))
        return event

    def _is_taken(self, command_id: CommandId, known: CommandRow | None) -> bool:
        """Whether the present history has the command already, or had it."""
        if known is None:
            return self.tombstone(command_id) is not None
        return (known.record.accepted_seq or known.record.receipt_seq or 0) > self.base

    def _check_call(self, draft: Draft, data: CommandAccepted, known: CommandRow | None) -> None:
        if (
            data.kind != TOOL_CALL
            or draft.operation_id is None
            or data.args_digest is None
            or data.write is None
        ):
            raise ImpossibleEvent(data.KIND, "a call needs operation_id, tool, args_digest and write")
        if known is not None:
            return
        row = find_operation(self.ledger, draft.operation_id)
        advance(None if row is None else row.record.state, data.KIND)

    def _append_command(self, draft: Draft, data: CommandCompleted | CommandFailed) -> StoredEvent:
        command = None if draft.command_id is None else find_command(self.ledger, draft.command_id)
        if command is None:
            raise ImpossibleEvent(data.KIND, f"there is no command {draft.command_id}")
        if command.record.receipt_seq is not None:
            raise ImpossibleEvent(data.KIND, f"the command {draft.command_id} has its receipt already")
        if (record := command.record).kind == TOOL_CALL:
            raise ImpossibleEvent(data.KIND, "a call's receipt is an event of its operation")
        address = Address(record.run_id, record.command_id, record.operation_id, record.origin)
        sealed = self._seal(draft, data, address, terminal=True)
        payload = self.command_payload(record.command_id)
        ledger = self._write()
        if record.kind == RUN_ERASE:
            ledger.execute("delete_walk", (command.id,))
        event = self._insert(sealed, project_command(ledger, sealed.fact, data, command, payload))
        self._follow(consequences.of_receipt(ledger, command, payload))
        return event

    def _append_operation(self, draft: Draft) -> StoredEvent:
        row = None if draft.operation_id is None else find_operation(self.ledger, draft.operation_id)
        if row is None:
            raise IllegalMove(None, draft.data.KIND)
        terminal = draft.data.TERMINAL and row.receipt_seq is None
        data = _superseding(draft.data, row)
        if terminal and restates(row):
            _check_restated(data, row)
        else:
            if data.KIND in MOVING:
                advance(row.record.state, data.KIND)
            if isinstance(data, OperationStarted) and data.attempt <= row.record.attempt_count:
                raise ImpossibleEvent(data.KIND, f"attempt {data.attempt} has begun already")
            data = consequences.with_children(self.ledger, data, row)
        data = on_wire(data, self.base)
        record = row.record
        address = Address(record.run_id, record.command_id, record.operation_id, record.origin)
        redacting = draft
        if not draft.redact and self.has_keyed_digests:
            redacting = replace(draft, redact=self._redacted_before(record.accepted_seq))
        if erasure.is_erased(self.ledger, row.command):
            # identity and effect are all that is kept of what comes later
            data, redacting = stripped(data), replace(redacting, payload=None)
        sealed = self._seal(redacting, data, address, terminal=terminal)
        ledger = self._write(draft)
        if draft.redact:
            # a contract may withhold more than it did when the call was accepted
            redact = as_text(draft.redact)
            ledger.execute("set_redact", (redact, record.accepted_seq, redact))
        made = project_operation(ledger, sealed.fact, row, terminal=terminal)
        event = self._insert(sealed, made.place)
        self._follow(consequences.of_event(ledger, sealed.fact, row, made))
        return event

    def _follow(self, drafts: Iterable[Draft]) -> None:
        """Record what follows, one after the other, however deep it goes: each may depend on those before.

        What follows from an event that is itself recorded here comes before the next one.
        """
        self._following.append(iter(drafts))
        if len(self._following) > 1:
            return  # whoever records it goes on with these
        try:
            while self._following:
                draft = next(self._following[-1], None)
                if draft is None:
                    self._following.pop()
                else:
                    self.append(draft)
        finally:
            self._following.clear()

    # ------------------------------------------------------------ what all of them do

    def _redacted_before(self, accepted_seq: int) -> tuple[str, ...]:
        """Return what was withheld of the call when it was accepted."""
        if not self.has_keyed_digests:
            return ()
        row = self.ledger.execute("command_data", (accepted_seq,)).fetchone()
        return () if row is None else as_paths(row[0])

    def writing(self) -> Batches:
        """Return the ledger to write to, for `store`'s own modules: all of it is undone with the unit."""
        return self._write()

    def _write(self, draft: Draft | None = None) -> Batches:
        """Begin to write."""
        ledger = self._batches
        self._touched = True
        if draft is not None and draft.redact and ledger.head.key_check is None:
            ledger.head = replace(ledger.head, key_check=key_of(ledger).check)
        return ledger

    def _seal(self, draft: Draft, data: EventData, address: Address, *, terminal: bool) -> Sealed:
        return seal(self.ledger, self._terms, draft, data, address, terminal=terminal)

    def _insert(self, sealed: Sealed, place: Place) -> StoredEvent:
        """Write the event itself, after what follows from it: only then are all its rows known."""
        event, ledger = sealed.event, self._write()
        ledger.write(
            "insert_event",
            (
                event.seq,
                event.kind,
                event.at,
                place.run,
                place.command,
                place.operation,
                int(event.terminal),
                event.digest,
                event.chain,
                event.body,
            ),
        )
        if sealed.payload is not None:
            digest = getattr(sealed.fact.data, "payload_digest", None)
            # a result is recorded without what the contract withholds, and stays
            redact = as_text(sealed.redact) if isinstance(sealed.fact.data, CommandAccepted) else None
            pieces.keep(ledger, event.seq, digest, redact, sealed.payload)
            ledger.waiting_bytes += len(sealed.payload)
        ledger.waiting_bytes += len(event.body or b"")
        ledger.head.last_seq, ledger.head.chain = event.seq, event.chain
        self.appended.append(event)
        return event

    def beat(self) -> None:
        """Write, and change nothing: the commit proves that the journal can."""
        self._write()

    def keep(self) -> bool:
        """End the unit: what it wrote stays in the transaction.

        Returns whether it wrote. For the journal's owner.
        """
        self._batches.keep()
        return self._touched

    def undo(self) -> None:
        """Take back what the unit wrote. For the journal's owner."""
        self._batches.undo()


def _check_restated(data: EventData, row: OperationRow) -> None:
    if data.KIND.removeprefix("operation.") != row.record.state:
        raise ImpossibleEvent(data.KIND, f"the operation ended {row.record.state} in an earlier history")


def _superseding(data: EventData, row: OperationRow) -> EventData:
    if row.receipt_seq is None or "supersedes" not in MEMBERS[data.KIND]:
        return data
    return with_members(data, supersedes=row.receipt_seq)
