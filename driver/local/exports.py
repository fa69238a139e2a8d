"""All operations of a journal as text for other programs: a line of JSON each, or a table.

Part of `driver.local`, pure; imports the store's vocabulary and its own shapes. The command line writes the
same where no daemon runs.
"""

import csv
import io
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from driver.local import shapes
from driver.local.answers import encoded
from store.records import JsonValue, OperationRecord

Format: TypeAlias = Literal["ndjson", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("ndjson", "csv")
MEDIA_TYPES: Final[dict[Format, str]] = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
PAGE: Final = 256
"""Operations read at once, between two commits: some milliseconds."""

COLUMNS: Final = (
    "operation_id", "command_id", "run_id", "origin", "tool", "args_digest", "state", "effect", "effect_by",
    "best_effort", "settled", "reason", "receipt", "attempt_count", "metadata", "accepted_at", "started_at",
    "ended_at", "deadline_at",
)  # fmt: skip
"""The columns of a table, in the order of docs/local-api.md."""

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


def beginning(form: Format) -> bytes:
    """Return what stands before the first operation: the names of a table's columns."""
    return b"" if form == "ndjson" else _row(COLUMNS)


def lines(records: Iterable[OperationRecord], form: Format) -> bytes:
    """Return a line for each operation, with the members that lists show."""
    shown = (shapes.operation(record) for record in records)
    if form == "ndjson":
        return b"".join(encoded(item) + b"\n" for item in shown)
    return b"".join(_row(_cell(item[name]) for name in COLUMNS) for item in shown)


def _cell(value: JsonValue) -> str:
    """Return a value as a table shows it: nothing for null, JSON for what is no text, and never a formula."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return encoded(value).decode("ascii")
    return f"'{value}" if value.startswith(_FORMULA) else str(value)


def _row(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")
