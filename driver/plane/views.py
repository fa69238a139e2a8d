"""Duty: never turn silence into failure. What the plane knows, for people and programs to read.

Part of `driver.plane`; imports its siblings. For `Ledger.read`. A command is in one of these states:

    queued      nobody has it: it has certainly not run
    sent        its driver has it, and is connected
    accepted    its driver said so, and is connected
    in_doubt    its driver may have it, and is gone: it may have run, and may yet run
    conflict    its driver knows this id with other content: what became of that is the driver's to say
    succeeded, failed, not_executed, unknown, completed, refused    the last word of its receipt's kind

`in_doubt` is true for as long as nobody can say whether the effect happened, whatever the state is called.
"""

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from driver.plane.delivery import delivered_to

_COMMANDS: Final = """
    WITH facts AS (
      SELECT c.*, e.body AS receipt,
        c.driver_id IN (SELECT value FROM json_each(:connected)) AS present,
        EXISTS (SELECT 1 FROM deliveries AS d
                WHERE d.command_id=c.command_id AND d.sent>d.declined) AS delivered
      FROM commands AS c LEFT JOIN events AS e ON e.journal_id=c.journal_id AND e.seq=c.receipt_seq),
    states AS (
      SELECT *, CASE
        WHEN receipt_kind IS NOT NULL THEN substr(receipt_kind, instr(receipt_kind, '.') + 1)
        WHEN conflict THEN 'conflict'
        WHEN NOT delivered AND NOT accepted THEN 'queued'
        WHEN NOT ifnull(present, 0) THEN 'in_doubt'
        WHEN accepted THEN 'accepted' ELSE 'sent' END AS state
      FROM facts),
    known AS (SELECT *, unsettled OR state IN ('in_doubt', 'conflict') AS in_doubt FROM states)
"""

_PLAIN: Final = (
    *("command_id", "run_id", "kind", "origin", "driver_id", "created_at"),
    *("state", "effect", "operation_id"),
)

View: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which part of a list is wanted, newest first: at most `limit` items whose place is below `cursor`."""

    limit: int
    cursor: int
    run: str | None = None


class Reader:
    """The plane's knowledge, as of now: `connected` are the drivers that are there."""

    def __init__(self, connection: sqlite3.Connection, connected: Collection[str]) -> None:
        self._db = connection
        self._connected = json.dumps(sorted(connected))

    def command(self, command_id: str) -> View | None:
        """Return all that is known of one command, or None."""
        rows = self._rows("SELECT * FROM known WHERE command_id=:id", id=command_id)
        return self._command(rows[0]) if rows else None

    def commands(self, wanted: Wanted, *, only_receipts: bool) -> View:
        """Return a page of commands, or of those that have their receipt."""
        rows = self._rows(
            "SELECT * FROM known WHERE id < :cursor AND (:run IS NULL OR run_id=:run)"
            " AND (NOT :only_receipts OR receipt_kind IS NOT NULL) ORDER BY id DESC LIMIT :limit + 1",
            cursor=wanted.cursor,
            run=wanted.run,
            limit=wanted.limit,
            only_receipts=only_receipts,
        )
        return _page(rows, wanted, [self._command(row) for row in rows[: wanted.limit]])

    def runs(self, wanted: Wanted) -> View:
        """Return a page of runs. One is settled when every command has its receipt, and none is in doubt."""
        rows = self._rows(
            "SELECT run_id, count(*) AS commands, sum(receipt_kind IS NULL) AS open,"
            " sum(in_doubt) AS in_doubt, max(id) AS id FROM known"
            " WHERE run_id IS NOT NULL AND (:run IS NULL OR run_id=:run)"
            " GROUP BY run_id HAVING max(id) < :cursor ORDER BY max(id) DESC LIMIT :limit + 1",
            cursor=wanted.cursor,
            run=wanted.run,
            limit=wanted.limit,
        )
        return _page(rows, wanted, [_run(row) for row in rows[: wanted.limit]])

    def drivers(self) -> View:
        """Return every driver that ever said hello."""
        rows = self._rows(
            "SELECT d.*, d.driver_id IN (SELECT value FROM json_each(:connected)) AS connected, j.seq"
            " FROM drivers AS d LEFT JOIN journals AS j ON j.journal_id=d.hello ->> 'journal_id'"
            " ORDER BY d.driver_id"
        )
        return {"items": [_driver(row) for row in rows], "next": None, "truncated": False}

    def events(self, after: int, limit: int) -> Sequence[tuple[int, str]]:
        """Return events in the order in which they arrived, each with its cursor."""
        rows = self._db.execute(
            "SELECT id, body FROM events WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        return [(row["id"], row["body"]) for row in rows]

    def _rows(self, sql: str, **values: str | int | None) -> list[sqlite3.Row]:
        return self._db.execute(_COMMANDS + sql, {"connected": self._connected, **values}).fetchall()

    def _command(self, row: sqlite3.Row) -> View:
        return {
            **{name: row[name] for name in _PLAIN},
            "in_doubt": bool(row["in_doubt"]),
            "data": json.loads(row["data"] or "null"),
            "delivered_to": delivered_to(self._db, row["command_id"]),
            "receipt_kind": row["receipt_kind"],
            "receipt": json.loads(row["receipt"] or "null"),
        }


def _run(row: sqlite3.Row) -> View:
    state = "in_doubt" if row["in_doubt"] else "open" if row["open"] else "settled"
    return {"state": state, **{name: row[name] for name in ("run_id", "commands", "open", "in_doubt")}}


def _driver(row: sqlite3.Row) -> View:
    hello = json.loads(row["hello"])
    told = ("driver_id", "journal_id", "boot_id", "software", "state", "tombstone_days")
    return {
        **{name: hello[name] for name in told},
        "connected": bool(row["connected"]),
        "acked_seq": row["seq"],
        "seen_at": row["seen_at"],
    }


def _page(rows: Sequence[sqlite3.Row], wanted: Wanted, items: list[View]) -> View:
    more = len(rows) > wanted.limit
    return {"items": items, "next": rows[wanted.limit - 1]["id"] if more else None, "truncated": more}
