"""Rows of the journal with the rowids that join them: commands, operations and runs, as they are read.

Part of `store`, pure: imports its lifecycle and records.
"""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from store.lifecycle import Effect, Evidence, Source, State
from store.records import CommandRecord, OperationRecord, Origin, RunId, RunRecord, Timestamp
from store.values import light

Row = tuple[Any, ...]
"""A row as SQLite returns it; each column's type is the schema's (its tables are STRICT)."""


@light
@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command with the rowids that join it to other tables."""

    record: CommandRecord
    id: int
    run: int


Known = tuple[tuple[int, Evidence], ...]
"""Evidence to judge by, in order, with the seq of the event that it is from."""


@light
@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation with the rowids that join it to other tables, and its command's receipt."""

    record: OperationRecord
    id: int
    command: int
    run: int
    receipt_seq: int | None
    listed: bool
    known: Known | None = None
    """What was said of it; None: whoever wants to know asks."""


class RunRow(NamedTuple):
    """A run with its rowid. `resumes`: whether it continues other runs."""

    id: int
    run_id: RunId
    ended: int
    outcome: str | None
    operations: int
    unsettled: int
    first_at: Timestamp
    last_at: Timestamp
    resumes: int = 0

    @property
    def record(self) -> RunRecord:
        """The run as it is handed out."""
        return RunRecord(
            run_id=self.run_id,
            ended=bool(self.ended),
            outcome=self.outcome,
            operations=self.operations,
            unsettled=self.unsettled,
            first_at=self.first_at,
            last_at=self.last_at,
        )


def run_record(row: Row) -> RunRecord:
    """Return the run of a row that has the columns of `RunRow`, the last one left out or not."""
    return RunRow(*row).record


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
