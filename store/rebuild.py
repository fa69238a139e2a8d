"""The projections made again from the events, beside the journal: what `effectd verify --deep` compares with.

Part of `store`; imports its own modules. The code that projects is the one that runs when an event is
recorded (`store.tables`), on a database of its own that begins with what pruning has left of the runs. That
database is SQLite's own temporary one: beyond its cache it is in a file that no name leads to, so that
memory stays bounded however long the journal is.

Identities come from the events' content, rowids from their rows; the journal's own projections are not asked.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec

from store import pieces, schema
from store.batches import Batches
from store.declared import EventData
from store.errors import ScratchFailed
from store.events import CommandAccepted, CommandCompleted, CommandFailed, CommandRefused
from store.head import new_head
from store.located import OperationRow, Row
from store.projection import Fact
from store.records import OperationId, Origin
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
from store.wire import frame_of, from_json

P = ParamSpec("P")

PROJECTIONS: Final = ("runs", "run_links", "commands", "operations", "attempts", "evidence")
_CACHE_KIB: Final = 65_536
"""What the temporary database keeps in memory."""
_CACHED_STATEMENTS: Final = 64
_INDEXES: Final = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"


class Unprojectable(Exception):
    """An event that the projections cannot take: its content, or another event, is damaged."""

    def __init__(self, seq: int, error: Exception) -> None:
        self.seq = seq
        super().__init__(f"event {seq} cannot be projected: {type(error).__name__}: {error}")


class Rebuilt:
    """The projections of a journal's events so far. `close` it.

    Nothing of the journal is changed, and its errors pass as they are. Raises `ScratchFailed` where the
    temporary database does not work.
    """

    def __init__(self, view: View) -> None:
        try:
            # it is made in the owner's thread, and may be closed in another one
            self._connection: Final = sqlite3.connect(
                "", isolation_level=None, cached_statements=_CACHED_STATEMENTS, check_same_thread=False
            )
        except sqlite3.OperationalError as error:
            raise ScratchFailed(str(error)) from error
        try:
            self._prepare()
            head = view.ledger.head
            fresh = new_head(file_id=head.file_id, journal_id=head.journal_id, created_at=head.created_at)
            self.ledger: Final = Batches(self._connection, fresh)
            self._has_histories: Final = view.base > 0
            self.after = 0
            """The newest event that is projected."""
            self._seed(view)
        except BaseException:
            self.close()  # who did not get it cannot
            raise

    def _prepare(self) -> None:
        try:
            for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
                self._connection.execute(f"PRAGMA {pragma}").fetchall()
            schema.migrate(self._connection)
            for (name,) in self._connection.execute(_INDEXES).fetchall():
                self._connection.execute(f"DROP INDEX {name}")  # whatever it is for, nobody asks for it here
            self._connection.execute("BEGIN")
        except sqlite3.OperationalError as error:
            raise ScratchFailed(str(error)) from error

    def recent(self, operation_id: OperationId) -> OperationRow | None:
        """Return an operation that is remembered, as of its newest event: what would be read of it."""
        return self.ledger.recent(operation_id)

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    def follow(self, view: View, limit: int) -> int:
        """Project the next events, at most `limit`; return how many there were. Raises `Unprojectable`."""
        rows = view.ledger.execute("events_to_project", (self.after, limit)).fetchall()
        for row in rows:
            payload = self._payload(view, row) if row[1] in _RECEIPTS else None
            self._guarded(self._project, row, payload)
        self._guarded(self.ledger.catch_up)
        if rows:
            self.after = rows[-1][0]
        return len(rows)

    def _guarded(self, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except sqlite3.OperationalError as error:
            raise ScratchFailed(str(error)) from error
        except Exception as error:
            raise Unprojectable(self.ledger.seq, error) from error

    def _payload(self, view: View, row: Row) -> bytes | None:
        """Return the `data` of the command that an event is the receipt of: it alone says how a run ended."""
        self._guarded(self.ledger.catch_up)
        accepted = self.ledger.execute("acceptance_of", (row[3],)).fetchone()
        return None if accepted is None else pieces.payload(view.ledger, *accepted)

    def _seed(self, view: View) -> None:
        """Begin with what pruned events have left of their runs."""
        traces = view.ledger.execute("all_traces").fetchall()
        for run, run_id, ended, outcome, first_at, last_at, _ in traces:
            self.ledger.execute("seed_run", (run, run_id, ended, outcome, first_at, last_at))
        for run, *_, resumes in traces:
            for resumed in json.loads(resumes):
                self.ledger.execute("seed_run_link", (run, resumed))

    def _project(self, row: Row, payload: bytes | None) -> None:
        seq, kind, run, command, operation, body = row
        ledger = self.ledger
        ledger.seq = seq
        frame = frame_of(body)
        data = from_json(kind, frame["data"])
        if data.requeue_of is not None:
            return  # it reports again what was projected long since
        fact = _fact(seq, frame, data)
        ledger.rows = (run, command, operation)
        if fact.operation_id is not None and not isinstance(data, _OF_COMMANDS):
            self._project_operation(fact, fact.operation_id, terminal=bool(frame["terminal"]))
        elif isinstance(data, CommandAccepted | CommandRefused):
            self._project_command(fact, data)
        elif isinstance(data, CommandCompleted | CommandFailed):
            self._project_receipt(fact, data, payload)
        else:
            project_run(ledger, fact)

    def _project_command(self, fact: Fact, data: CommandAccepted | CommandRefused) -> None:
        assert fact.command_id is not None
        # only a later history of the file takes a command again
        earlier = find_command(self.ledger, fact.command_id) if self._has_histories else None
        if earlier is not None:
            project_again(self.ledger, fact, data, earlier)
        else:
            project_new_command(self.ledger, fact, data)

    def _project_receipt(
        self, fact: Fact, data: CommandCompleted | CommandFailed, payload: bytes | None
    ) -> None:
        assert fact.command_id is not None
        earlier = find_command(self.ledger, fact.command_id)
        assert earlier is not None, "its command was never accepted"
        project_command(self.ledger, fact, data, earlier, payload)

    def _project_operation(self, fact: Fact, operation_id: OperationId, *, terminal: bool) -> None:
        row = find_operation(self.ledger, operation_id)
        assert row is not None, "its operation was never accepted"
        project_operation(self.ledger, fact, row, terminal=terminal)


_OF_COMMANDS: Final = (CommandAccepted, CommandRefused, CommandCompleted, CommandFailed)
_RECEIPTS: Final = frozenset({CommandCompleted.KIND, CommandFailed.KIND})
_ORIGINS: Final[Mapping[str, Origin]] = {origin.value: origin for origin in Origin}


def _fact(seq: int, frame: Mapping[str, Any], data: EventData) -> Fact:
    return Fact(
        seq=seq,
        at=frame["at"],
        data=data,
        run_id=frame["run_id"],
        command_id=frame["command_id"],
        operation_id=frame["operation_id"],
        origin=_ORIGINS[frame["origin"]],
        base=seq - frame["seq"],
    )
