"""The projections made again from the events: what `effectd verify --deep` compares with.

Part of `store`; imports its own modules. The code that projects is the one that runs when an event is
recorded (`store.tables`), on a journal in memory that begins with what pruning has left of the runs.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from typing import Any, Final

from store import schema
from store.events import CommandAccepted, CommandCompleted, CommandFailed, CommandRefused
from store.head import Ledger, new_head
from store.projection import Fact
from store.records import Origin, StoredEvent
from store.tables import (
    find_command,
    find_operation,
    project_again,
    project_command,
    project_new_command,
    project_operation,
    project_run,
)
from store.view import View
from store.wire import from_json

PROJECTIONS: Final = ("runs", "run_links", "commands", "operations", "attempts", "evidence")
_PAGE: Final = 256
_PAGE_BYTES: Final = 64_000_000
"""The bodies of one page: what the comparison holds in memory of the events."""


def differences(view: View) -> Iterator[tuple[str, str]]:
    """Yield table and problem for each row that is not what the events make of it, and for the counts.

    An event that cannot be projected ends the comparison with a word about it.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection)
        head = view.ledger.head
        fresh = new_head(file_id=head.file_id, journal_id=head.journal_id, created_at=head.created_at)
        rebuilt = Ledger(connection, fresh)
        connection.execute("BEGIN")
        _seed(rebuilt, view)
        for event in _events(view):
            try:
                replay(rebuilt, event, view)
            except Exception as error:  # noqa: BLE001 - whatever a damaged event leads to
                yield "events", f"event {event.seq} cannot be projected: {type(error).__name__}: {error}"
                return
        for table in PROJECTIONS:
            yield from _compare(table, view.ledger, rebuilt)
        if dict(rebuilt.head.counts) != dict(view.counts()):
            yield (
                "journal",
                f"counts {dict(view.counts())} are kept, and the events make {dict(rebuilt.head.counts)}",
            )


def _events(view: View) -> Iterator[StoredEvent]:
    after = 0
    while page := view.events(after, _PAGE, _PAGE_BYTES):
        yield from page
        after = page[-1].seq


def _seed(ledger: Ledger, source: View) -> None:
    """Begin with what pruned events have left of their runs."""
    traces = source.ledger.execute("all_traces").fetchall()
    for run, run_id, ended, outcome, first_at, last_at, _ in traces:
        ledger.execute("seed_run", (run, run_id, ended, outcome, first_at, last_at))
    for run, *_, resumes in traces:
        for resumed in json.loads(resumes):
            ledger.execute("seed_run_link", (run, resumed))


def replay(ledger: Ledger, event: StoredEvent, source: View) -> None:
    """Project one stored event again. `source` has the payloads, which are not rebuilt.

    Of an event that was erased, what is left serves. Rows get the rowids that they had. Raises whatever a
    damaged event leads to.
    """
    run, command, operation = source.ledger.execute("event_place", (event.seq,)).fetchone()
    known = event.run_id is not None and ledger.execute("run", (event.run_id,)).fetchone() is not None
    ledger.rows = (None if known else run, command, operation)
    frame: dict[str, Any] = json.loads(event.body or source.remains(event.seq) or b"")
    data = from_json(event.kind, frame["data"])
    if data.requeue_of is not None:
        return  # it reports again what was projected long since
    fact = Fact.of(event, data, Origin(frame["origin"]), base=event.seq - frame["seq"])
    match data:
        case CommandAccepted() | CommandRefused():
            assert event.command_id is not None
            earlier = find_command(ledger, event.command_id)
            if earlier is None:
                project_new_command(ledger, fact, data)
            else:
                project_again(ledger, fact, data, earlier)
        case CommandCompleted() | CommandFailed():
            assert event.command_id is not None
            found = find_command(ledger, event.command_id)
            assert found is not None
            project_command(ledger, fact, data, found, source.command_payload(event.command_id))
        case _ if event.operation_id is not None:
            row = find_operation(ledger, event.operation_id)
            assert row is not None
            project_operation(ledger, fact, row, terminal=event.terminal)
        case _:
            project_run(ledger, fact)


def _compare(table: str, kept: Ledger, rebuilt: Ledger) -> Iterator[tuple[str, str]]:
    pairs = zip_longest(kept.execute(f"all_{table}"), rebuilt.execute(f"all_{table}"))
    for mine, theirs in pairs:
        if mine != theirs:
            yield table, f"{mine} is kept, and the events make {theirs}"
