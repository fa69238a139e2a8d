"""What "the journal was rolled back", or restored from a backup, does to it: another history, in one unit.

Part of `store`; imports its own modules. Definition: docs/protocol.md, section 5.

Theory of operation
-------------------
The plane, or another life, has seen this journal go on from a point in the past; what it did since, nobody
here can know. So the present history ends where it is, and a new one begins, of which the plane knows
nothing. What the plane may not hold yet is recorded again in it, each command with its acceptance:

* a receipt that was not acknowledged, or that is a dead letter, as it was. Where another attempt of its
  operation has ended since, the word of that is the receipt in the new history: the one before it could say
  that nothing happened, and nothing would follow it there;
* an operation that is not settled as `unknown`, reason `rolled_back`: it may have gone on elsewhere;
* another command without a receipt as failed, code `rolled_back`.

However much that is, it is one unit (about 0.4 ms for each command), in which nothing else is committed. A
crash leaves the fence as it was, and all of it to be accepted anew. In steps it would be wrong: others would
commit while the new history is there in parts. An answer that comes late, a probe or an operator would add to
an operation that the new history does not have yet, and the plane would read the second word about it before
the first. While the daemon is fenced it starts nothing, so only answers wait for the unit to end. Each
command is told as progress, so that the watchdog (`driver.watchdog`) can tell a long unit from a disk that
hangs.

All else stays known, and is answered with `retired`. The events of the old history stay in the file, where
`effectd verify` looks at them; they are below the new history's beginning, and so never sent.

An effect of `none` that was learned before is nothing to build on any more: the operations that become
unknown lose it here, and for the others rule R looks at when it was learned (`View.base`).
"""

from dataclasses import dataclass, replace

from store import chain
from store.declared import EventData
from store.events import CommandFailed, Draft, DriverUnfenced, OperationUnknown
from store.head import row_digest
from store.records import (
    TOOL_CALL,
    CommandId,
    CommandRecord,
    History,
    JournalId,
    OperationId,
    OperationRecord,
    StoredEvent,
    timestamp,
)
from store.tables import find_operation
from store.transaction import Transaction
from store.wire import data_of, frame_of, from_json, with_members

MESSAGE = (
    "the journal was rolled back to an earlier state, and nobody here knows what happened after that: find "
    "out, then reconcile it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """What the new history begins with."""

    journal_id: JournalId
    previous_journal_id: JournalId
    unknown: tuple[OperationId, ...]
    """The operations that were not settled."""
    repeated: int
    """Receipts that were recorded again."""


def accept_rollback(tx: Transaction, journal_id: JournalId, *, reason: str, actor: str) -> RolledBack:
    """Begin the history `journal_id`, and record in it what the plane may not hold yet. Lifts the fence."""
    wire_seq = tx.last_seq - tx.base
    again = [row[0] for row in tx.ledger.execute("commands_to_record_again", (tx.acked_seq,))]
    ended = begin_history(tx, journal_id)
    tx.append(
        Draft(
            data=DriverUnfenced(
                reason=reason,
                actor=actor,
                previous_journal_id=ended.journal_id,
                previous_seq=wire_seq,
                previous_chain=ended.chain,
            )
        )
    )
    unknown = [found for command_id in again if (found := _record_again(tx, command_id)) is not None]
    return RolledBack(
        journal_id=journal_id,
        previous_journal_id=ended.journal_id,
        unknown=tuple(unknown),
        repeated=len(again) - len(unknown),
    )


def begin_history(tx: Transaction, journal_id: JournalId) -> History:
    """End the present history, and begin another one, of no events yet; return the one that ended.

    Nothing of the file is moved or lost: its events stay, and are never sent again. The fence is lifted.
    """
    ledger, head = tx.writing(), tx.ledger.head
    ended = History(
        journal_id=head.journal_id,
        base=head.base,
        last=head.last_seq,
        chain=head.chain,
        acked=head.acked_seq,
        ended_at=timestamp(tx.now),
    )
    values = (ended.journal_id, ended.base, ended.last, ended.chain, ended.acked, ended.ended_at)
    ledger.execute("insert_history", (*values, row_digest(*values)))
    ledger.head = replace(
        head,
        journal_id=journal_id,
        base=head.last_seq,
        chain=chain.origin(journal_id),
        acked_seq=head.last_seq,
    )
    tx.lift_fence()
    return ended


def _record_again(tx: Transaction, command_id: CommandId) -> OperationId | None:
    """Record one command again; return its operation, if that is unknown from now on."""
    tx.ledger.progress += 1
    command = tx.command(command_id)
    assert command is not None, "it was found in this unit"
    operation = None
    if command.kind == TOOL_CALL and command.operation_id is not None:
        operation = tx.operation(command.operation_id)
    receipt = None if command.receipt_seq is None else tx.event(command.receipt_seq)
    if receipt is not None and receipt.body is None:
        return None  # it was erased on demand, which nothing is before it was acknowledged
    if command.accepted_seq is not None:
        accepted = tx.event(command.accepted_seq)
        assert accepted is not None, "the acceptance of what is not settled, or not delivered, is kept"
        _append(tx, command, accepted, data_of(accepted))
    if operation is not None and not operation.settled:
        tx.append(_unknown(operation))
        return operation.operation_id
    if receipt is None:
        data = CommandFailed(code="rolled_back", message=MESSAGE)
        tx.append(Draft(data=data, command_id=command_id))
    elif operation is not None and (word := _said_since(tx, operation, receipt)) is not None:
        tx.append(Draft(data=word, operation_id=operation.operation_id))
    else:
        _append(tx, command, receipt, data_of(receipt))
    return None


def _said_since(tx: Transaction, operation: OperationRecord, receipt: StoredEvent) -> EventData | None:
    """Return the word with which an attempt behind the receipt has ended the operation; None without one."""
    row = find_operation(tx.ledger, operation.operation_id)
    assert row is not None, "it was found in this unit"
    word = tx.ledger.execute("newest_of_kind", (row.id, f"operation.{operation.state}")).fetchone()
    if word is None or word[0] is None or word[0] == receipt.body:
        return None
    frame = frame_of(word[0])
    return with_members(from_json(frame["kind"], frame["data"]), supersedes=None)


def _append(tx: Transaction, command: CommandRecord, event: StoredEvent, data: EventData) -> None:
    draft = Draft(
        data=data,
        run_id=event.run_id,
        command_id=event.command_id,
        operation_id=event.operation_id,
        origin=command.origin,
    )
    recorded = tx.append(draft)
    # what the event keeps outside the chain belongs to the new one
    tx.writing().execute("move_payload", (recorded.seq, event.seq))


def _unknown(operation: OperationRecord) -> Draft:
    data = OperationUnknown(
        reason="rolled_back",
        phase=None,
        attempts=operation.attempt_count,
        message=MESSAGE,
        receipt=operation.receipt,
    )
    return Draft(data=data, operation_id=operation.operation_id)
