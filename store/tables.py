"""The projections in SQL: reads rows as records, and writes what an event changes.

Part of `store`; imports its own modules. Runs in the owner's thread, within the open transaction.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from store import projection
from store.batches import Batches
from store.events import (
    CommandAccepted,
    CommandCompleted,
    CommandFailed,
    CommandRefused,
    OperationFailed,
    OperationReconciled,
    OperationStarted,
    OperationSucceeded,
)
from store.head import Ledger
from store.lifecycle import ENDED, Effect, Evidence, Source, State, contradictions
from store.located import CommandRow, Known, OperationRow
from store.projection import Fact
from store.records import (
    CommandRecord,
    JsonObject,
    OperationId,
    OperationRecord,
    RunId,
)
from store.values import light

RUN_END: Final = "run.end"
RUN_ERASE: Final = "run.erase"
EVER: Final = 2**62
"""Behind every event, and above every rowid."""


@light
@dataclass(frozen=True, slots=True)
class Place:
    """Which rows an event belongs to."""

    run: int | None = None
    command: int | None = None
    operation: int | None = None


@light
@dataclass(frozen=True, slots=True)
class Projected:
    """What an event made of its operation, and which earlier events it contradicts (`seq`)."""

    place: Place
    row: OperationRow
    """As it is now."""
    contradicted: tuple[int, ...] = ()

    @property
    def after(self) -> OperationRecord:
        """The operation as it is now."""
        return self.row.record


@light
@dataclass(frozen=True, slots=True)
class Taken:
    """What a command's first event made: where it belongs, and, for a call, the operation."""

    place: Place
    operation: OperationRow | None = None


def find_command(ledger: Ledger, command_id: str) -> CommandRow | None:
    """Return the command, or None."""
    return ledger.command(command_id)


def find_operation(ledger: Ledger, operation_id: str) -> OperationRow | None:
    """Return the operation, or None."""
    return ledger.operation(operation_id)


def project_run(ledger: Batches, fact: Fact) -> Place:
    """Record an event that belongs to a run, or to nothing."""
    return Place() if fact.run_id is None else Place(run=ledger.touch_run(fact.run_id, fact.at))


def project_new_command(ledger: Batches, fact: Fact, data: CommandAccepted | CommandRefused) -> Taken:
    """Record a command at its acceptance, or at its final refusal; for a call, its operation."""
    assert fact.command_id is not None
    run = None if fact.run_id is None else ledger.touch_run(fact.run_id, fact.at)
    accepted = isinstance(data, CommandAccepted)
    record = CommandRecord(
        command_id=fact.command_id,
        run_id=fact.run_id,
        kind=data.kind if isinstance(data, CommandAccepted) else "",  # a refusal does not say of what
        origin=fact.origin,
        content_digest=data.content_digest,
        operation_id=fact.operation_id,
        accepted_seq=fact.seq if accepted else None,
        accepted_at=fact.at,
        receipt_seq=None if accepted else fact.seq,
        receipt_kind=None if accepted else data.KIND,
        expires_at=data.expires_at if isinstance(data, CommandAccepted) else None,
    )
    command = ledger.add_command(record, run).id
    for resumed in data.resumes or ():
        ledger.write("link_runs", (resumed, fact.run_id))
    if not isinstance(data, CommandAccepted) or data.tool is None:
        return Taken(Place(run=run, command=command, operation=_rowid(ledger, fact.operation_id)))
    assert run is not None, "a call belongs to a run"
    made = ledger.add_operation(projection.new_operation(fact, data), command, run)
    return Taken(Place(run=run, command=command, operation=made.id), made)


def project_again(
    ledger: Batches, fact: Fact, data: CommandAccepted | CommandRefused, command: CommandRow
) -> Place:
    """Record a command that an earlier history of this file took, or refused, as one of the present history.

    Of an accepted one the receipt follows. An operation that is not settled is open again until then, and no
    `none` of the earlier history counts for it any more.
    """
    run = None if fact.run_id is None else ledger.touch_run(fact.run_id, fact.at)
    accepted = isinstance(data, CommandAccepted)
    values = (
        fact.seq if accepted else None,
        fact.at,
        None if accepted else fact.seq,
        None if accepted else data.KIND,
        command.id,
    )
    ledger.write("accept_command_again", values)
    row = None if fact.operation_id is None else find_operation(ledger, fact.operation_id)
    if row is not None and row.command == command.id and accepted:
        _accept_operation_again(ledger, fact, row, command.record.receipt_seq)
    return Place(run=run, command=command.id, operation=None if row is None else row.id)


def _accept_operation_again(ledger: Batches, fact: Fact, row: OperationRow, receipt_seq: int | None) -> None:
    if row.record.settled:
        ledger.write("accept_operation_again", (fact.seq, fact.at, receipt_seq, row.id))
        return
    ledger.write("reopen_operation", (fact.seq, fact.at, row.id))
    ledger.write("forget_absence", (row.id,))
    ledger.count_in_run(row.run, 0, -int(row.listed), fact.at)
    ledger.move(row.record.state, State.ACCEPTED)


def _rowid(ledger: Ledger, operation_id: OperationId | None) -> int | None:
    row = None if operation_id is None else find_operation(ledger, operation_id)
    return None if row is None else row.id


def project_command(
    ledger: Batches,
    fact: Fact,
    data: CommandCompleted | CommandFailed,
    command: CommandRow,
    payload: bytes | None,
) -> Place:
    """Record the receipt of a command that is not a call. `payload` is the command's `data`."""
    assert command.record.run_id is not None, "only a refused command has no run"
    run = ledger.touch_run(command.record.run_id, fact.at)
    ledger.set_receipt(command.id, fact.seq, data.KIND)
    if isinstance(data, CommandCompleted) and command.record.kind == RUN_END:
        end_run(ledger, command.record.run_id, _outcome(payload))
    return Place(run=run, command=command.id, operation=_rowid(ledger, command.record.operation_id))


def _outcome(payload: bytes | None) -> str | None:
    data: JsonObject = json.loads(payload) if payload is not None else {}
    outcome = data.get("outcome")
    return outcome if isinstance(outcome, str) else None


def end_run(ledger: Batches, run_id: RunId, outcome: str | None) -> None:
    """Let the run take no more calls."""
    ledger.write("end_run", (outcome, run_id))


def project_operation(ledger: Batches, fact: Fact, row: OperationRow, *, terminal: bool) -> Projected:
    """Record an event of an operation: its state, its attempts, its evidence, and what they prove.

    Raises `IllegalMove` before anything is written.
    """
    place = Place(run=row.run, command=row.command, operation=row.id)
    if terminal and restates(row):
        return Projected(_restate(ledger, fact, row, place), row)
    changes = projection.follow(row.record, fact)
    words = projection.evidence(fact.data, row.record, _attempts_seen(ledger, fact, row))
    _write_attempts(ledger, fact, row)
    actor = fact.data.actor if isinstance(fact.data, OperationReconciled) else None
    for word in words:
        values = (row.id, fact.seq, word.attempt, fact.at, word.effect.value, word.source.value, actor)
        ledger.write("insert_evidence", values)
    receipt_seq = fact.seq if terminal else row.receipt_seq
    record, listed, known = row.record, row.listed, row.known
    if changes or words:
        known = _known(ledger, row, fact, words)
        record, listed = projection.judged(record, changes, [item for _, item in known])
    now = OperationRow(record, row.id, row.command, row.run, receipt_seq, listed, known)
    if terminal:
        ledger.set_receipt(row.command, fact.seq, fact.data.KIND)
    if changes or words:
        ledger.change_operation(row, now)
    ledger.count_in_run(row.run, 0, int(now.listed) - int(row.listed), fact.at)
    _set_due(ledger, record, receipt_seq)  # the event may be the first to withhold something
    contradicted = _contradicted(ledger, fact, words, row, known) if words and known else ()
    return Projected(place, now, contradicted)


def known_of(ledger: Ledger, rowid: int, before: int = EVER) -> Known:
    """Return what was known of an operation before event `before`: by default, all that is known now."""
    rows = ledger.execute("evidence_to_judge", {"operation": rowid, "before": before})
    return tuple(
        (seq, Evidence(attempt, Effect(effect), Source(source))) for seq, attempt, effect, source, _ in rows
    )


def _known(ledger: Ledger, row: OperationRow, fact: Fact, words: Sequence[Evidence]) -> Known:
    """Return all that is known of the operation now, `words` of this event, which are written, included."""
    # another attempt may put an end to what was said of it before it began
    if row.known is None or (row.known and (isinstance(fact.data, OperationStarted) or _replaces(fact))):
        return known_of(ledger, row.id)
    return (*row.known, *((fact.seq, word) for word in words)) if words else row.known


def _replaces(fact: Fact) -> bool:
    """Whether the event puts an end to an earlier one of its kind: a word that follows from child runs."""
    return isinstance(fact.data, OperationReconciled) and fact.data.basis == projection.DELEGATION


def _contradicted(
    ledger: Ledger, fact: Fact, words: Sequence[Evidence], row: OperationRow, known: Known
) -> tuple[int, ...]:
    """Return the seqs of the events that said the opposite of what this one says."""
    if _replaces(fact):
        known = known_of(ledger, row.id, fact.seq)  # with the word that it replaces
    elif len(known) == len(words):
        return ()
    before = [(seq, item) for seq, item in known if seq != fact.seq]
    opposite = [item for word in words for item in contradictions((item for _, item in before), word)]
    return tuple(dict.fromkeys(seq for seq, item in before if item in opposite))


def restates(row: OperationRow) -> bool:
    """Whether the next receipt of an operation says again what it said in an earlier history of the file."""
    return row.receipt_seq is None and row.record.state in ENDED


def _restate(ledger: Batches, fact: Fact, row: OperationRow, place: Place) -> Place:
    """Record a receipt that was recorded before: nothing is learned from it."""
    if fact.data.KIND in _WITH_RESULT:
        ledger.write("restate_operation", (fact.seq, row.id))
    ledger.set_receipt(row.command, fact.seq, fact.data.KIND)
    ledger.count_in_run(row.run, 0, 0, fact.at)
    _set_due(ledger, row.record, fact.seq)
    return place


_WITH_RESULT: Final = frozenset({OperationSucceeded.KIND, OperationFailed.KIND})


def _attempts_seen(ledger: Ledger, fact: Fact, row: OperationRow) -> int:
    data = fact.data
    if not isinstance(data, OperationReconciled):
        return row.record.attempt_count
    if data.started_seq is None:
        # an intent of an earlier history has no name in this one: what began since was not seen
        is_later = fact.base and (row.record.started_seq or 0) > fact.base
        seen = ledger.execute("attempts_begun_by", (row.id, fact.base)).fetchone() if is_later else None
        return row.record.attempt_count if seen is None else int(seen[0])
    started_seq = data.started_seq + fact.base
    if started_seq == row.record.started_seq:
        return row.record.attempt_count
    found = ledger.execute("attempt_started_at_seq", (row.id, started_seq)).fetchone()
    return row.record.attempt_count if found is None else int(found[0])


def _write_attempts(ledger: Batches, fact: Fact, row: OperationRow) -> None:
    data = fact.data
    if isinstance(data, OperationStarted):
        attempt = (
            row.id,
            data.attempt,
            data.idempotency_key,
            data.key_carrier,
            int(data.idempotent),
            data.dedupe_horizon_s,
            fact.seq,
            fact.at,
            data.deadline_at,
        )
        ledger.write("insert_attempt", attempt)
    elif (end := projection.attempt_end(data, row.record)) is not None:
        values = (end.phase, end.outcome, end.reason, fact.at, end.duration_ms, row.id, end.attempt)
        ledger.write("end_attempt", values)


def _set_due(ledger: Batches, after: OperationRecord, receipt_seq: int | None) -> None:
    """Let the call's secrets be erased once its receipt is acknowledged, or not yet, or not any more."""
    if ledger.head.key_check is None:
        return  # no call in here has any
    due = receipt_seq if projection.erasable(after) else None
    ledger.write("set_due", (due, after.accepted_seq, due))
