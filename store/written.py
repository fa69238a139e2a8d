"""Rows of the journal as they are written: the way back from `store.located`, and what is added to them.

Part of `store`, pure: imports its lifecycle, located rows, records and values.

Enums are bound by their `value` and booleans as integers: for anything but exact built-in types, sqlite3
first looks for an adapter, at several microseconds each.
"""

import json
from typing import Final, NamedTuple

from store.located import CommandRow, OperationRow, Row, RunRow
from store.records import CommandRecord, Timestamp
from store.values import changed

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""`json.dumps` would make an encoder each time."""


class Sum(NamedTuple):
    """What is to be added to a run, and when something happened in it last."""

    operations: int
    unsettled: int
    at: Timestamp

    def without(self, part: "Sum") -> "Sum":
        """Return what of it is not the part."""
        return Sum(self.operations - part.operations, self.unsettled - part.unsettled, self.at)


def summed(run: RunRow, more: Sum) -> RunRow:
    """Return the run with what is to be added to it."""
    return RunRow(
        run.id,
        run.run_id,
        run.ended,
        run.outcome,
        run.operations + more.operations,
        run.unsettled + more.unsettled,
        run.first_at,
        max(run.last_at, more.at),
        run.resumes,
    )


def with_receipt(command: CommandRow, seq: int, kind: str) -> CommandRow:
    """Return the command with its receipt."""
    record = changed(command.record, {"receipt_seq": seq, "receipt_kind": kind})
    return CommandRow(record, command.id, command.run)


def received(row: OperationRow, seq: int) -> OperationRow:
    """Return the operation with its command's receipt."""
    return OperationRow(row.record, row.id, row.command, row.run, seq, row.listed, row.known)


def new_command(record: CommandRecord, rowid: int, run: int | None) -> Row:
    """Return all of a command."""
    return (
        rowid,
        record.command_id,
        run,
        record.kind,
        record.origin.value,
        record.content_digest,
        record.operation_id,
        record.accepted_seq,
        record.accepted_at,
        record.receipt_seq,
        record.receipt_kind,
        record.expires_at,
    )


def changed_operation(row: OperationRow) -> Row:
    """Return what changes of an operation, and its rowid."""
    record = row.record
    return (
        record.state.value,
        record.effect.value,
        None if record.effect_by is None else record.effect_by.value,
        int(row.listed),
        int(record.guards),
        record.reason,
        record.error_means,
        _as_text(record.receipt),
        record.attempt_count,
        _as_text(record.metadata),
        record.started_seq,
        record.result_seq,
        record.started_at,
        record.ended_at,
        record.deadline_at,
        row.id,
    )


def new_operation(row: OperationRow) -> Row:
    """Return all of an operation."""
    record = row.record
    return (
        *changed_operation(row),
        record.operation_id,
        row.command,
        row.run,
        record.origin.value,
        record.tool,
        record.args_digest,
        int(record.write),
        record.identical,
        int(record.repeat),
        record.accepted_seq,
        record.accepted_at,
        record.expires_at,
        record.parent_operation_id,
    )


def _as_text(value: object) -> str | None:
    return None if value is None else _encode(value)
