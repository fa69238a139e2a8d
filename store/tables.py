"""The projections in SQL: reads rows as records, and writes what an event changes.

Part of `store`; imports its own modules. Runs in the owner's thread, within the open transaction.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from store import projection
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
from store.projection import Fact
from store.records import (
    CommandRecord,
    JsonObject,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    Timestamp,
)

RUN_END: Final = "run.end"
RUN_ERASE: Final = "run.erase"

# Enums are bound by their `value` and booleans as integers: for anything but exact built-in types, sqlite3
# first looks for an adapter, at several microseconds each.

Row = tuple[Any, ...]
"""A row as SQLite returns it; each column's type is the schema's (its tables are STRICT)."""


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command with the rowids that join it to other tables."""

    record: CommandRecord
    id: int
    run: int


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation with the rowids that join it to other tables, and its command's receipt."""

    record: OperationRecord
    id: int
    command: int
    run: int
    receipt_seq: int | None
    listed: bool
    known: "Known | None" = None
    """What was said of it; None: whoever wants to know asks."""


Known = tuple[tuple[int, Evidence], ...]
"""Evidence to judge by, in order, with the seq of the event that it is from."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which rows an event belongs to."""

    run: int | None = None
    command: int | None = None
    operation: int | None = None


@dataclass(frozen=True, slots=True)
class Projected:
    """What an event made of its operation, and which earlier events it contradicts (`seq`)."""

    place: Place
    row: OperationRow
    """But for its receipt, as it is now."""
    contradicted: tuple[int, ...] = ()

    @property
    def after(self) -> OperationRecord:
        """The operation as it is now."""
        return self.row.record


@dataclass(frozen=True, slots=True)
class Taken:
    """What a command's first event made: where it belongs, and, for a call, the operation."""

    place: Place
    operation: OperationRow | None = None


def command_row(row: Row) -> CommandRow:
    """Return the command of a row of `command_rows`."""
    (
        rowid, command_id, run_id, kind, origin, content_digest, operation_id, accepted_seq, accepted_at,
        receipt_seq, receipt_kind, expires_at, run,
    ) = row  # fmt: skip
    record = CommandRecord(
        command_id=command_id,
        run_id=run_id,
        kind=kind,
        origin=Origin(origin),
        content_digest=content_digest,
        operation_id=operation_id,
        accepted_seq=accepted_seq,
        accepted_at=accepted_at,
        receipt_seq=receipt_seq,
        receipt_kind=receipt_kind,
        expires_at=expires_at,
    )
    return CommandRow(record, rowid, run)


def operation_row(row: Row) -> OperationRow:
    """Return the operation of a row of `operation_rows`."""
    (
        rowid, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest,
        write, identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt,
        attempt_count, metadata, accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at,
        deadline_at, expires_at, parent,
    ) = row  # fmt: skip
    record = OperationRecord(
        operation_id=operation_id,
        command_id=command_id,
        run_id=run_id,
        origin=Origin(origin),
        tool=tool,
        args_digest=args_digest,
        write=bool(write),
        identical=identical,
        repeat=bool(repeat),
        state=State(state),
        effect=Effect(effect),
        effect_by=None if effect_by is None else Source(effect_by),
        best_effort=effect_by == Source.SUPERVISOR,
        settled=ended_at is not None and not listed,
        guards=bool(guards),
        reason=reason,
        error_means=error_means,
        receipt=None if receipt is None else json.loads(receipt),
        attempt_count=attempt_count,
        metadata=None if metadata is None else json.loads(metadata),
        accepted_seq=accepted_seq,
        started_seq=started_seq,
        result_seq=result_seq,
        accepted_at=accepted_at,
        started_at=started_at,
        ended_at=ended_at,
        deadline_at=deadline_at,
        expires_at=expires_at,
        parent_operation_id=parent,
    )
    return OperationRow(record, rowid, command, run, receipt_seq, bool(listed))


def find_command(ledger: Ledger, command_id: str) -> CommandRow | None:
    """Return the command, or None."""
    row = ledger.execute("command", (command_id,)).fetchone()
    return None if row is None else command_row(row)


def find_operation(ledger: Ledger, operation_id: str) -> OperationRow | None:
    """Return the operation, or None."""
    row = ledger.execute("operation", (operation_id,)).fetchone()
    return None if row is None else operation_row(row)


_encode: Final = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False
).encode  # `dumps` makes one each time


def _as_text(value: object) -> str | None:
    return None if value is None else _encode(value)


def project_run(ledger: Ledger, fact: Fact) -> Place:
    """Record an event that belongs to a run, or to nothing."""
    return Place() if fact.run_id is None else Place(run=ledger.touch_run(fact.run_id, fact.at))


def project_new_command(ledger: Ledger, fact: Fact, data: CommandAccepted | CommandRefused) -> Taken:
    """Record a command at its acceptance, or at its final refusal; for a call, its operation."""
    assert fact.command_id is not None
    run = None if fact.run_id is None else ledger.touch_run(fact.run_id, fact.at)
    accepted = isinstance(data, CommandAccepted)
    row = (
        ledger.rows[1],
        fact.command_id,
        run,
        data.kind if isinstance(data, CommandAccepted) else "",  # a refusal does not say of what
        fact.origin.value,
        data.content_digest,
        fact.operation_id,
        fact.seq if accepted else None,
        fact.at,
        None if accepted else fact.seq,
        None if accepted else data.KIND,
        data.expires_at if isinstance(data, CommandAccepted) else None,
    )
    command = ledger.insert("insert_command", row)
    if not isinstance(data, CommandAccepted) or data.tool is None:
        return Taken(Place(run=run, command=command, operation=_rowid(ledger, fact.operation_id)))
    assert run is not None, "a call belongs to a run"
    for resumed in data.resumes or ():
        ledger.write("link_runs", (resumed, fact.run_id))
    made = _insert_operation(ledger, projection.new_operation(fact, data), command, run)
    return Taken(Place(run=run, command=command, operation=made.id), made)


def project_again(
    ledger: Ledger, fact: Fact, data: CommandAccepted | CommandRefused, command: CommandRow
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


def _accept_operation_again(ledger: Ledger, fact: Fact, row: OperationRow, receipt_seq: int | None) -> None:
    if row.record.settled:
        ledger.write("accept_operation_again", (fact.seq, fact.at, receipt_seq, row.id))
        return
    ledger.write("reopen_operation", (fact.seq, fact.at, row.id))
    ledger.write("forget_absence", (row.id,))
    ledger.count_in_run(row.run, 0, -int(row.listed), fact.at)
    ledger.head = ledger.head.moved(row.record.state, State.ACCEPTED)


def _rowid(ledger: Ledger, operation_id: OperationId | None) -> int | None:
    row = None if operation_id is None else find_operation(ledger, operation_id)
    return None if row is None else row.id


def _insert_operation(ledger: Ledger, record: OperationRecord, command: int, run: int) -> OperationRow:
    row = (
        ledger.rows[2],
        record.operation_id,
        command,
        run,
        record.origin.value,
        record.tool,
        record.args_digest,
        int(record.write),
        record.identical,
        int(record.repeat),
        record.state.value,
        record.effect.value,
        None,
        0,
        int(record.guards),
        0,
        record.accepted_seq,
        record.accepted_at,
        record.expires_at,
        record.parent_operation_id,
    )
    operation = ledger.insert("insert_operation", row)
    ledger.count_in_run(run, 1, 0, record.accepted_at)
    ledger.head = ledger.head.moved(None, record.state)
    return OperationRow(record, operation, command, run, receipt_seq=None, listed=False, known=())


def project_command(
    ledger: Ledger,
    fact: Fact,
    data: CommandCompleted | CommandFailed,
    command: CommandRow,
    payload: bytes | None,
) -> Place:
    """Record the receipt of a command that is not a call. `payload` is the command's `data`."""
    assert command.record.run_id is not None, "only a refused command has no run"
    run = ledger.touch_run(command.record.run_id, fact.at)
    ledger.write("set_receipt", (fact.seq, data.KIND, command.id))
    if isinstance(data, CommandCompleted) and command.record.kind == RUN_END:
        end_run(ledger, command.record.run_id, _outcome(payload))
    return Place(run=run, command=command.id, operation=_rowid(ledger, command.record.operation_id))


def _outcome(payload: bytes | None) -> str | None:
    data: JsonObject = json.loads(payload) if payload is not None else {}
    outcome = data.get("outcome")
    return outcome if isinstance(outcome, str) else None


def end_run(ledger: Ledger, run_id: RunId, outcome: str | None) -> None:
    """Let the run take no more calls."""
    ledger.write("end_run", (outcome, run_id))


def project_operation(ledger: Ledger, fact: Fact, row: OperationRow, *, terminal: bool) -> Projected:
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
    if changes or words:
        known = _known(ledger, row, fact, words)
        after = projection.judged(row.record, changes, (item for _, item in known))
        now = _update_operation(ledger, row, after, fact.at, known)
        _set_due(ledger, after, fact.seq if terminal else row.receipt_seq)
        found = Projected(place, now, _contradicted(fact, words, known))
    else:
        ledger.count_in_run(row.run, 0, 0, fact.at)
        _set_due(ledger, row.record, row.receipt_seq)  # the event may be the first to withhold something
        found = Projected(place, row)
    if terminal:
        ledger.write("set_receipt", (fact.seq, fact.data.KIND, row.command))
    return found


def _known(ledger: Ledger, row: OperationRow, fact: Fact, words: Sequence[Evidence]) -> Known:
    """Return all that is known of the operation now, `words` of this event, which are written, included."""
    # another attempt may put an end to what was said of it before it began
    if row.known is None or (row.known and isinstance(fact.data, OperationStarted)):
        return tuple(
            (seq, Evidence(attempt, Effect(effect), Source(source)))
            for seq, attempt, effect, source in ledger.execute("evidence_to_judge", (row.id,))
        )
    return (*row.known, *((fact.seq, word) for word in words)) if words else row.known


def _contradicted(fact: Fact, words: Sequence[Evidence], known: Known) -> tuple[int, ...]:
    """Return the seqs of the events that said the opposite of what this one says."""
    if len(known) == len(words):
        return ()
    before = [(seq, item) for seq, item in known if seq != fact.seq]
    opposite = [item for word in words for item in contradictions((item for _, item in before), word)]
    return tuple(dict.fromkeys(seq for seq, item in before if item in opposite))


def restates(row: OperationRow) -> bool:
    """Whether the next receipt of an operation says again what it said in an earlier history of the file."""
    return row.receipt_seq is None and row.record.state in ENDED


def _restate(ledger: Ledger, fact: Fact, row: OperationRow, place: Place) -> Place:
    """Record a receipt that was recorded before: nothing is learned from it."""
    if fact.data.KIND in _WITH_RESULT:
        ledger.write("restate_operation", (fact.seq, row.id))
    ledger.write("set_receipt", (fact.seq, fact.data.KIND, row.command))
    ledger.count_in_run(row.run, 0, 0, fact.at)
    _set_due(ledger, row.record, fact.seq)
    return place


_WITH_RESULT: Final = frozenset({OperationSucceeded.KIND, OperationFailed.KIND})


def _attempts_seen(ledger: Ledger, fact: Fact, row: OperationRow) -> int:
    data = fact.data
    if not isinstance(data, OperationReconciled) or data.started_seq is None:
        return row.record.attempt_count
    started_seq = data.started_seq + fact.base
    if started_seq == row.record.started_seq:
        return row.record.attempt_count
    found = ledger.execute("attempt_started_at_seq", (row.id, started_seq)).fetchone()
    return row.record.attempt_count if found is None else int(found[0])


def _write_attempts(ledger: Ledger, fact: Fact, row: OperationRow) -> None:
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


def _update_operation(
    ledger: Ledger, row: OperationRow, after: OperationRecord, at: Timestamp, known: Known
) -> OperationRow:
    listed = projection.listed(after)
    values = (
        after.state.value,
        after.effect.value,
        None if after.effect_by is None else after.effect_by.value,
        int(listed),
        int(after.guards),
        after.reason,
        after.error_means,
        _as_text(after.receipt),
        after.attempt_count,
        _as_text(after.metadata),
        after.started_seq,
        after.result_seq,
        after.started_at,
        after.ended_at,
        after.deadline_at,
        row.id,
    )
    ledger.write("update_operation", values)
    ledger.count_in_run(row.run, 0, int(listed) - int(row.listed), at)
    ledger.head = ledger.head.moved(row.record.state, after.state)
    return OperationRow(after, row.id, row.command, row.run, row.receipt_seq, listed, known)


def _set_due(ledger: Ledger, after: OperationRecord, receipt_seq: int | None) -> None:
    """Let the call's secrets be erased once its receipt is acknowledged, or not yet, or not any more."""
    if ledger.head.key_check is None:
        return  # no call in here has any
    due = receipt_seq if projection.erasable(after) else None
    ledger.write("set_due", (due, after.accepted_seq, due))
