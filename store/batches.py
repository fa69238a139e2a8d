"""A ledger that writes later: many rows at a time, where projections are made again from a whole journal.

Part of `store`; imports its own modules. Used by `store.rebuild`.

What `store.tables` writes for one event stands alone: by the rowid of its own row. So the writes of many
events may go statement by statement instead of event by event, each statement once for all its rows, as long
as rows are there before they are changed, and whoever reads finds everything written. Of an `update` that
sets the same columns always only the newest counts for a row, and a run's sums may be added up beforehand.
All other statements run at once, after everything that waits.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from store.head import Head, Ledger, Parameters
from store.records import RunId
from store.statements import STATEMENTS

_APPENDED: Final = ("insert_command", "insert_operation", "insert_attempt", "end_attempt", "insert_evidence")
"""Statements whose writes wait, in the order in which they are caught up with."""
_NEWEST: Final = ("update_operation", "set_receipt")
"""Likewise, after those; only the newest one of a row, whose rowid is its last parameter."""
_SQL: Final = {
    # nobody waits for the rowid, and to return it takes as long as to insert the row
    name: STATEMENTS[name].removesuffix(" RETURNING id")
    for name in (*_APPENDED, *_NEWEST, "count_in_run")
}
_RUNS_MAX: Final = 4_096
"""Runs whose rowid is not looked up again."""

_Write = tuple[int, tuple[object, ...]]
"""The seq of the event, and the parameters."""


class Batches(Ledger):
    """A ledger whose writes wait until `catch_up`, or until somebody reads.

    `seq` is the event that is being projected; after an error, the one whose write failed.
    """

    def __init__(self, connection: sqlite3.Connection, head: Head) -> None:
        super().__init__(connection, head)
        self.seq = 0
        self._appended: Final[dict[str, list[_Write]]] = {name: [] for name in _APPENDED}
        self._newest: Final[dict[str, dict[object, _Write]]] = {name: {} for name in _NEWEST}
        self._sums: Final[dict[int, tuple[int, int, int, str]]] = {}
        """By run: seq, operations, unsettled ones, and when something happened last."""
        self._run_ids: Final[dict[RunId, int]] = {}
        """Rowids of some of the runs that are there."""
        self._waits = False

    def execute(self, name: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run the statement, after everything that waits."""
        self.catch_up()
        return super().execute(name, parameters)

    def write(self, name: str, parameters: tuple[object, ...]) -> None:
        """Let the write wait, where it can."""
        if name in self._appended:
            self._appended[name].append((self.seq, parameters))
        elif name in self._newest:
            self._newest[name][parameters[-1]] = (self.seq, parameters)
        else:
            self.execute(name, parameters)
            return
        self._waits = True

    def insert(self, name: str, parameters: tuple[object, ...]) -> int:
        """Let the new row wait, where it says its rowid itself."""
        rowid = parameters[0]
        if not isinstance(rowid, int) or name not in self._appended:
            return super().insert(name, parameters)
        self.write(name, parameters)
        return rowid

    def touch_run(self, run_id: RunId, at: str) -> int:
        """Note when something happened in the run, which is made with its first event."""
        run = self._run_ids.get(run_id)
        if run is None:
            if len(self._run_ids) == _RUNS_MAX:
                self._run_ids.clear()
            # not after everything that waits: none of that is about whether there is such a run
            found = super().execute("run", (run_id,)).fetchone()
            if found is None:
                run = self._run_ids[run_id] = super().insert("touch_run", (self.rows[0], run_id, at, at))
                return run
            run = self._run_ids[run_id] = int(found[0])
        self.count_in_run(run, 0, 0, at)
        return run

    def count_in_run(self, run: int, operations: int, unsettled: int, at: str) -> None:
        """Add to the run's sums."""
        sums = self._sums.get(run)
        if sums is not None:
            _, operations_, unsettled_, at_ = sums
            operations, unsettled, at = operations + operations_, unsettled + unsettled_, max(at, at_)
        self._sums[run] = (self.seq, operations, unsettled, at)
        self._waits = True

    def catch_up(self) -> None:
        """Write everything that waits. Raises sqlite3.Error."""
        if not self._waits:
            return
        self._waits = False
        seq = self.seq
        for name, writes in self._appended.items():
            self._write(name, writes)
            writes.clear()
        for name, newest in self._newest.items():
            self._write(name, newest.values())
            newest.clear()
        sums = [(seq, (*values, run)) for run, (seq, *values) in self._sums.items()]
        self._write("count_in_run", sums)
        self._sums.clear()
        self.seq = seq

    def _write(self, name: str, writes: Iterable[_Write]) -> None:
        if writes:
            self.connection.executemany(_SQL[name], self._parameters(writes))

    def _parameters(self, writes: Iterable[_Write]) -> Iterator[tuple[object, ...]]:
        for self.seq, parameters in writes:
            yield parameters
