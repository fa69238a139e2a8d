"""A journal of very many operations, made in bulk: as if each had been called, answered and acknowledged.

Written behind the journal's back, row for row what the journal itself writes, as `effectd verify --deep`
agrees, and some fifty times faster.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from store.declared import EventData
from store.events import CommandAccepted
from store.head import read_head, write_head
from store.lifecycle import State
from store.records import Chain, CommandId, Digest, JournalId, OperationId, Origin, RunId, Timestamp
from store.wire import render
from tests.store.drafts import LATER, accepted, command_id, digest, operation_id, started, succeeded

EVENTS: Final = 3
"""Events of each operation: its acceptance, its intent, its receipt."""
CALLS_OF_A_RUN: Final = 100
_CHUNK: Final = 50 * CALLS_OF_A_RUN
_AT: Final = Timestamp("2030-01-01T00:00:00.000000Z")
_N: Final = 7_777_777
"""Stands for the operation's number in the templates, and for its seq."""
_RUN: Final = "@run@"
_PAYLOAD: Final = Digest("@payload@")
_TABLES: Final = {
    "runs": "id, run_id, operations, first_at, last_at",
    "commands": (
        "id, command_id, run, kind, origin, content_digest, operation_id, accepted_seq, accepted_at,"
        " receipt_seq, receipt_kind"
    ),
    "operations": (
        "id, operation_id, command, run, origin, tool, args_digest, write, identical, repeat, state, effect,"
        " effect_by, listed, guards, receipt, attempt_count, accepted_seq, started_seq, result_seq,"
        " accepted_at, started_at, ended_at, deadline_at"
    ),
    "attempts": (
        "operation, attempt, idempotency_key, key_carrier, idempotent, started_seq, started_at, deadline_at,"
        " phase, outcome, ended_at, duration_ms"
    ),
    "evidence": "operation, seq, attempt, at, effect, source",
    "payloads": "seq, digest, body",
    "events": "seq, kind, at, run, command, operation, terminal, digest, chain, body",
}


def fill_up(file: Path, operations: int) -> None:
    """Let the empty and closed journal `file` have this many operations (whole runs), all of them settled."""
    assert operations % CALLS_OF_A_RUN == 0
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY rowid"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        head = read_head(connection)
        assert head.last_seq == 0
        rows = _Rows(head.journal_id)
        for first in range(1, operations + 1, _CHUNK):
            _write(connection, rows, range(first, min(first + _CHUNK, operations + 1)))
        for _, sql in indexes:
            connection.execute(sql)
        last = operations * EVENTS
        counts = {**head.counts, State.SUCCEEDED: operations}
        write_head(connection, replace(head, last_seq=last, acked_seq=last, chain=rows.chain, counts=counts))
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()


def _write(connection: sqlite3.Connection, rows: "_Rows", numbers: range) -> None:
    found: dict[str, list[tuple[object, ...]]] = {table: [] for table in _TABLES}
    for n in numbers:
        for table, row in rows.of(n):
            found[table].append(row)
    for table, values in found.items():
        marks = ", ".join("?" * (_TABLES[table].count(",") + 1))
        connection.executemany(f"INSERT INTO {table} ({_TABLES[table]}) VALUES ({marks})", values)


class _Rows:
    """The rows of one operation after the other, and the chain so far."""

    def __init__(self, journal_id: JournalId) -> None:
        self.chain = Chain(journal_id)
        acceptance = accepted(_N).data
        assert isinstance(acceptance, CommandAccepted)
        acceptance = replace(acceptance, payload_digest=_PAYLOAD)
        self._templates = [
            (data.KIND, _template(data, journal_id))
            for data in (acceptance, started(_N).data, succeeded(_N).data)
        ]

    def of(self, n: int) -> Iterator[tuple[str, tuple[object, ...]]]:
        """Yield tables and rows."""
        run = (n - 1) // CALLS_OF_A_RUN + 1
        first, intent, receipt = range((n - 1) * EVENTS + 1, n * EVENTS + 1)
        command, operation, content = command_id(n), operation_id(n), digest(n)
        payload = json.dumps({"tool": "issues/create", "arguments": {"n": n}}).encode()
        payload_digest = sha256(payload).hexdigest()
        if n % CALLS_OF_A_RUN == 1:
            yield "runs", (run, f"run-{run}", CALLS_OF_A_RUN, _AT, _AT)
        yield "commands", (
            n, command, run, "tool.call", "plane", content, operation, first, _AT, receipt,
            "operation.succeeded",
        )  # fmt: skip
        yield "operations", (
            n, operation, n, run, "plane", "issues/create", content, 1, "guard-unsettled", 0, "succeeded",
            "occurred", "provider", 0, 0, '"issue-7"', 1, first, intent, receipt, _AT, _AT, _AT, LATER,
        )  # fmt: skip
        yield "attempts", (
            n, 1, operation, "meta", 1, intent, _AT, LATER, "answered", "succeeded", _AT, 12,
        )  # fmt: skip
        yield "evidence", (n, receipt, 1, _AT, "occurred", "provider")
        yield "payloads", (first, payload_digest, payload)
        for seq, (kind, template) in zip((first, intent, receipt), self._templates, strict=True):
            body = template % {
                "seq": seq, "run": f"run-{run}", "command": command, "operation": operation,
                "digest": content, "payload": payload_digest,
            }  # fmt: skip
            yield "events", (seq, kind, _AT, run, n, n, int(seq == receipt), *self._sealed(body))

    def _sealed(self, body: str) -> tuple[str, str, bytes]:
        content = sha256(body.encode()).hexdigest()
        self.chain = Chain(sha256(f"{self.chain}{content}".encode()).hexdigest()[:32])
        return content, self.chain, f'{body[:-1]},"chain":"{self.chain}"}}'.encode()


def _template(data: EventData, journal_id: JournalId) -> str:
    """The event's bytes, with a place for all in which one operation differs from another."""
    text = render(
        data,
        journal_id=journal_id,
        seq=_N,
        at=_AT,
        run_id=RunId(_RUN),
        command_id=CommandId(command_id(_N)),
        operation_id=OperationId(operation_id(_N)),
        origin=Origin.PLANE,
        terminal=data.TERMINAL,
        best_effort=False,
    ).decode()
    places = (
        (operation_id(_N), "operation"), (digest(_N), "digest"), (command_id(_N), "command"), (_RUN, "run"),
        (_PAYLOAD, "payload"), (str(_N), "seq"),
    )  # fmt: skip
    for mark, name in places:
        text = text.replace(mark, f"%({name})s")
    return text
