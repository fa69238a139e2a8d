"""Duty: deliver each command until there is a receipt, and always know which journals may have executed it.

Part of `driver.plane`; imports `driver.core` and the plane's ledger. For `Ledger.change`, like all of the
plane's writes.

A delivery is written down before it is sent: if the plane dies in between, the journal is on the list
although it never saw the command, which costs an operator a look; the other order could cost a second charge.
"""

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from driver.core.fields import JournalIdField
from driver.core.frames import CommandFrame, Hello, Refused
from driver.core.identity import content_digest
from driver.core.strictjson import dumps_compact, loads
from driver.plane.ledger import now

PAGE: Final = 256
"""Commands handed out in one go; what follows waits until these were sent."""

HORIZON_DAYS_MAX: Final = 36_500
"""A hundred years: longer memories than that are as good as none to a calendar."""
STRIKES: Final = frozenset({"overloaded", "draining", "no_room"})
"""The refusals after which a journal has certainly not executed the command (docs/protocol.md, section 4)."""


class Submitted(Enum):
    """What became of a command that somebody gave to the plane."""

    NEW = "new"
    KNOWN = "known"
    CONFLICT = "conflict"
    RUN_IN_DOUBT = "run_in_doubt"
    DRIVER_UNCLEAR = "driver_unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOut:
    """Deliveries that are written down, and may be sent. `last` is the place of the newest of them."""

    frames: Sequence[CommandFrame]
    last: int


def submit(connection: sqlite3.Connection, command: CommandFrame, driver_id: str | None) -> Submitted:
    """Keep `command` for `driver_id`, or for the driver of its run, or for the only one that there is.

    The same id with the same content is the same command; with other content, a conflict. A run with
    something unsettled is not resumed: what it did is not known yet.
    """
    digest = content_digest(command.kind, command.run_id, command.data)
    found = connection.execute(
        "SELECT content_digest FROM commands WHERE command_id=?", (command.command_id,)
    ).fetchone()
    if found is not None:
        return Submitted.KNOWN if found["content_digest"] == digest else Submitted.CONFLICT
    if _unsettled(connection, command.data.get("resumes")):
        return Submitted.RUN_IN_DOUBT
    drivers = [driver_id] if driver_id is not None else _drivers_for(connection, command.run_id)
    if len(drivers) > 1:
        return Submitted.DRIVER_UNCLEAR
    connection.execute(
        "INSERT INTO commands (command_id, origin, driver_id, run_id, kind, data, expires_in_ms, traceparent,"
        " content_digest, created_at) VALUES (?, 'plane', ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            command.command_id,
            drivers[0] if drivers else None,
            command.run_id,
            command.kind,
            dumps_compact(command.data),
            command.expires_in_ms,
            command.traceparent,
            digest,
            now(),
        ),
    )
    return Submitted.NEW


def _unsettled(connection: sqlite3.Connection, runs: object) -> bool:
    found = connection.execute(
        "SELECT 1 FROM commands WHERE run_id IN (SELECT value FROM json_each(?))"
        " AND (receipt_kind IS NULL OR unsettled) LIMIT 1",
        (json.dumps(runs or []),),
    ).fetchone()
    return found is not None


def _drivers_for(connection: sqlite3.Connection, run_id: str) -> list[str]:
    """The driver of the run's newest command; else every driver that there is."""
    of_run = (
        "SELECT driver_id FROM commands WHERE run_id=? AND driver_id IS NOT NULL ORDER BY id DESC LIMIT 1"
    )
    rows = connection.execute(of_run, (run_id,)).fetchall()
    rows = rows or connection.execute("SELECT driver_id FROM drivers LIMIT 2").fetchall()
    return [row["driver_id"] for row in rows]


def hand_out(connection: sqlite3.Connection, hello: Hello, after: int) -> HandedOut:
    """Write down the next deliveries to this driver, and return them: its commands after `after`."""
    return _hand_out(connection, hello, after, "id > ?", after)


def hand_out_again(connection: sqlite3.Connection, hello: Hello, command_ids: Collection[str]) -> HandedOut:
    """The same for commands that this driver refused for want of room."""
    named = json.dumps(list(command_ids))
    return _hand_out(connection, hello, 0, "command_id IN (SELECT value FROM json_each(?))", named)


def _hand_out(
    connection: sqlite3.Connection, hello: Hello, after: int, which: str, value: int | str
) -> HandedOut:
    """Never a command with a receipt, nor one that the driver's tombstones may have forgotten."""
    horizon = datetime.now(UTC) - timedelta(days=min(hello.tombstone_days, HORIZON_DAYS_MAX))
    rows = connection.execute(  # `which` is one of the two conditions above
        f"SELECT * FROM commands WHERE {which} AND receipt_kind IS NULL AND origin='plane'"  # noqa: S608
        " AND NOT conflict"
        " AND (driver_id=? OR driver_id IS NULL) AND created_at > ? ORDER BY id LIMIT ?",
        (value, hello.driver_id, horizon.isoformat(timespec="microseconds"), PAGE),
    ).fetchall()
    frames = [_frame(connection, row) for row in rows]
    connection.executemany(
        "UPDATE commands SET driver_id=? WHERE id=?", [(hello.driver_id, row["id"]) for row in rows]
    )
    connection.executemany(
        "INSERT INTO deliveries (command_id, journal_id, sent, declined) VALUES (?, ?, 1, 0)"
        " ON CONFLICT DO UPDATE SET sent=sent+1",
        [(row["command_id"], hello.journal_id) for row in rows],
    )
    return HandedOut(frames=frames, last=rows[-1]["id"] if rows else after)


def refuse(connection: sqlite3.Connection, journal_id: str, refused: Refused) -> None:
    """Note a plain refusal: one that proves that nothing was executed counts against the delivery."""
    if refused.code in STRIKES:
        connection.execute(
            "UPDATE deliveries SET declined=declined+1 WHERE command_id=? AND journal_id=? AND declined<sent",
            (refused.command_id, journal_id),
        )
    elif refused.code == "conflict":
        connection.execute("UPDATE commands SET conflict=1 WHERE command_id=?", (refused.command_id,))


def delivered_to(connection: sqlite3.Connection, command_id: str) -> list[JournalIdField]:
    """Return the journals that may have executed the command."""
    rows = connection.execute(
        "SELECT journal_id FROM deliveries WHERE command_id=? AND sent>declined ORDER BY journal_id",
        (command_id,),
    )
    return [row["journal_id"] for row in rows]


def _frame(connection: sqlite3.Connection, row: sqlite3.Row) -> CommandFrame:
    return CommandFrame(
        command_id=row["command_id"],
        run_id=row["run_id"],
        kind=row["kind"],
        data=loads(row["data"]),
        expires_in_ms=row["expires_in_ms"],
        delivered_to=tuple(delivered_to(connection, row["command_id"])),
        traceparent=row["traceparent"],
    )
