"""The ledger that is written to: it keeps what a commit's units write, and writes it many rows at a time.

Part of `store`; imports its own modules. The journal's owner has one, and `store.rebuild` has one.

Theory of operation
-------------------
The projections name each row that they write by its rowid. So the writes of many events may be collected, and
made statement by statement instead of event by event: each statement once, for all its rows (an
`executemany`). Two things must hold: a row is there before it is changed, and whoever reads finds everything.

* **A row is written once.** Of a command, an operation or a run only what it is in the end is written: an
  operation that is accepted and started in one commit is one row. Until then it is read from here.
* **What has not ended is kept.** A bounded number of operations stays in memory beyond the commit, and is not
  read again for the next event. That is right only while nobody else writes. `total_changes` of the
  connection counts every row that any statement changes: where somebody else has moved it, all that was kept
  is forgotten.
* **Other statements come last.** `execute` first writes all that waits. `look` does not: it is for queries to
  which nothing that waits can be the answer.
* **A unit that fails is undone.** While all that it wrote waits here, that is taken out again. Where it must
  be written before the unit has ended, what waited before the unit is written first, and then a savepoint is
  set.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from store.errors import JournalFailed
from store.head import Head, Ledger, Parameters, write_head
from store.keys import DigestKey
from store.lifecycle import State
from store.located import CommandRow, OperationRow, Row, RunRow
from store.records import CommandRecord, Digest, OperationRecord, RunId, Timestamp
from store.statements import OF_A_STATEMENT, READS, STATEMENTS
from store.undoing import Undo
from store.written import Sum, changed_operation, new_command, new_operation, received, summed, with_receipt

RECENT_MAX: Final = 1_024
"""Operations that have not ended, and that are not read again for their next event."""
RUNS_MAX: Final = 4_096
"""Runs that are not read again."""
ANSWERS_MAX: Final = 4_096
"""Answers that are remembered."""

APPENDED: Final = (
    "insert_attempt",
    "end_attempt",
    "insert_evidence",
    "insert_event",
    "insert_payload",
    "insert_piece",
    "insert_delivery",
    "trim_deliveries",
)
"""Statements whose writes wait, in the order in which they are caught up with."""

_Write = tuple[int, Row]
"""The seq of the event, and the parameters."""


class Batches(Ledger):
    """A ledger whose writes wait until `catch_up`, or until somebody reads.

    `seq` is the event that is being projected; after an error, the one whose write failed. `rows` are the
    rowids that the run, the command and the operation of the next event get, where projections are made again
    (what was pruned has left holes between the old ones); None: new ones.
    """

    def __init__(self, connection: sqlite3.Connection, head: Head, key: DigestKey | None = None) -> None:
        super().__init__(connection, head, key)
        self.seq = 0
        self.rows: tuple[int | None, int | None, int | None] = (None, None, None)
        self._appended: Final[dict[str, list[_Write]]] = {name: [] for name in APPENDED}
        self._new_runs: Final[list[_Write]] = []
        self._new_commands: Final[list[_Write]] = []
        self._lists: Final = (*self._appended.values(), self._new_runs, self._new_commands)
        self._commands: Final[dict[str, CommandRow | None]] = {}
        """Those that were asked for since the last catching up, as they are without the receipts that wait.

        None: they are not there.
        """
        self._receipts: Final[dict[int, _Write]] = {}
        """By command."""
        self._operations: Final[dict[str, OperationRow]] = {}
        """As they are by now."""
        self._missing: Final[set[str]] = set()
        """Operations that were asked for since the last catching up, and are not there."""
        self._new_operations: Final[dict[str, int]] = {}
        """Those that are to be inserted, and the seq of their newest event."""
        self._changed_operations: Final[dict[str, int]] = {}
        self._runs: Final[dict[str, RunRow]] = {}
        """As they are without their sums."""
        self._run_names: Final[dict[int, str]] = {}
        """Of those, and of some that were undone."""
        self._sums: Final[dict[int, tuple[int, Sum]]] = {}
        """By run: the seq, and what is to be added."""
        self._alike: Final[set[tuple[int, Digest]]] = set()
        """Run and arguments of the writes that wait to be inserted."""
        self._delivered: Final[set[int]] = set()
        """Commands that wait to be inserted, and have a delivery."""
        self._answers: Final[dict[tuple[object, ...], Row | None]] = {}
        self._next: Final[dict[str, int]] = {}
        """The next new rowid, by table."""
        self._waits = False
        self.waiting_bytes = 0
        """What waits to be written beside small rows: bodies of events, and payloads."""
        self._seen = connection.total_changes
        self._undo: Final = Undo(self._lists)
        self._set: Final = self._undo.set
        self._saved = False
        """Whether the unit has its savepoint."""
        self._before = (head, head.last_seq, head.chain)
        self._counts: dict[State, int] = {}
        """Those before a unit that is saved."""

    # ------------------------------------------------------------ units

    def begin(self) -> None:
        """Begin a unit: what is written from here on can be undone."""
        self._undo.begin()
        self._before = (self.head, self.head.last_seq, self.head.chain)
        self._saved = False

    def keep(self) -> None:
        """End the unit: what it wrote stays."""
        self._undo.is_open = False
        if self._saved:
            self.connection.execute("RELEASE unit")

    def undo(self) -> None:
        """End the unit, and take back what it wrote."""
        self._undo.is_open = False
        if self._saved:
            self.connection.execute("ROLLBACK TO unit")
            self.connection.execute("RELEASE unit")
        self._undo.take_out()
        self.head, self.head.last_seq, self.head.chain = self._before
        if self._saved:
            self.head.counts.update(self._counts)
            self._drop()  # what was read meanwhile may be what was undone

    def _save(self) -> None:
        """Write what waited before this unit; then set a savepoint, and write what the unit wrote so far."""
        taken = self._undo.take_out()
        sums, inserted, self._counts = dict(self._sums), set(self._new_operations), dict(self.head.counts)
        self._write_all()
        self.connection.execute("SAVEPOINT unit")
        self._saved = True
        self._undo.put_back(taken)
        # what the unit only added to is written already, but for what it added
        for run in sums.keys() & self._sums.keys():
            seq, total = self._sums[run]
            self._sums[run] = (seq, total.without(sums[run][1]))
        for operation_id in inserted & self._new_operations.keys():
            self._changed_operations[operation_id] = self._new_operations.pop(operation_id)
        self._write_all()
        self._drop()

    # ------------------------------------------------------------ reading

    def execute(self, name: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        """Run the statement, after everything that waits."""
        if self._undo.is_open and not self._saved and (self._undo.has_any or name not in READS):
            self._save()
        else:
            self.catch_up()
        return super().execute(name, parameters)

    def ask(self, name: str, *parameters: object) -> Row | None:
        """Return the first row that a query has, asked once until something else is written."""
        self._look_around()
        question = (name, *parameters)
        if question in self._answers:
            return self._answers[question]
        answer = super().ask(name, *parameters)
        self._remember(question, answer)
        return answer

    def _remember(self, question: tuple[object, ...], answer: Row | None) -> None:
        if len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
        self._answers[question] = answer

    def command(self, command_id: str) -> CommandRow | None:
        """Return a command as it is by now."""
        self._look_around()
        if command_id in self._commands:
            found = self._commands[command_id]
        else:
            found = self._commands[command_id] = self._look_up(command_id)
        if found is None or (receipt := self._receipts.get(found.id)) is None:
            return found
        seq, kind, _ = receipt[1]
        return with_receipt(found, seq, kind)

    def rowid_of_command(self, command_id: str) -> int | None:
        """Return the rowid of a command, which is not read for it; None where there is none."""
        self._look_around()
        if (known := self._commands.get(command_id)) is not None:
            return known.id
        found = super().look("rowid_of_command", (command_id,)).fetchone()
        return None if found is None else cast("int", found[0])

    def _look_up(self, command_id: str) -> CommandRow | None:
        """Return a command as it stands in its table: most that are asked for are new, and nowhere."""
        is_there, is_buried = super().look("whereabouts", {"command_id": command_id}).fetchone()
        if not is_buried:
            self._remember(("tombstone", command_id), None)
        return super().command(command_id) if is_there else None

    def operation(self, operation_id: str) -> OperationRow | None:
        """Return an operation as it is by now."""
        self._look_around()
        found = self._operations.get(operation_id)
        if found is not None or operation_id in self._missing:
            return found
        found = super().operation(operation_id)
        if found is None:
            self._missing.add(operation_id)
        elif (receipt := self._receipts.get(found.command)) is not None:
            return received(found, receipt[1][0])
        elif found.record.ended_at is None:
            self._operations[operation_id] = found
        return found

    def run(self, run_id: str) -> RunRow | None:
        """Return a run as it is by now."""
        found = self._run(run_id)
        if found is None or (waiting := self._sums.get(found.id)) is None:
            return found
        return summed(found, waiting[1])

    def has_ended(self, run_id: str) -> bool:
        """Whether a run was ended."""
        found = self._run(run_id)
        return found is not None and bool(found.ended)

    def _run(self, run_id: str) -> RunRow | None:
        self._look_around()
        found = self._runs.get(run_id)
        if found is None and (found := super().run(run_id)) is not None:
            self._runs[run_id], self._run_names[found.id] = found, run_id
        return found

    def has_alike(self, run: int, args_digest: Digest) -> bool:
        """Whether a run has, or had, a write with these arguments."""
        return (run, args_digest) in self._alike or super().has_alike(run, args_digest)

    def is_first_delivery(self, command: int) -> bool:
        """Whether a command waits to be inserted, and this was not asked before: it has no other delivery."""
        # new rowids grow
        is_new = bool(self._new_commands) and command >= cast("int", self._new_commands[0][1][0])
        if not is_new or command in self._delivered:
            return False
        self._delivered.add(command)
        return True

    def _look_around(self) -> None:
        """Forget what is kept where somebody else has written."""
        if self.connection.total_changes != self._seen:
            self.catch_up()
            self._drop()

    def _drop(self) -> None:
        read = (self._commands, self._operations, self._missing, self._runs, self._run_names, self._answers)
        for kept in (*read, self._next):
            kept.clear()
        self._seen = self.connection.total_changes

    # ------------------------------------------------------------ writing

    def write(self, name: str, parameters: Row) -> None:
        """Let the write wait, where it can."""
        waiting = self._appended.get(name)
        if waiting is None:
            self.execute(name, parameters)
            return
        waiting.append((self.seq, parameters))
        self._waits = True

    def touch_run(self, run_id: RunId, at: Timestamp) -> int:
        """Note that something happened in a run, which is made with its first event; return its rowid."""
        found = self._run(run_id)
        if found is not None:
            self.count_in_run(found.id, 0, 0, at)
            return found.id
        rowid = self.rows[0] or self._new_rowid("runs")
        self._new_runs.append((self.seq, (rowid, run_id, at, at)))
        self._waits = True
        self._set(self._runs, run_id, RunRow(rowid, run_id, 0, None, 0, 0, at, at))
        self._run_names[rowid] = run_id
        return rowid

    def count_in_run(self, run: int, operations: int, unsettled: int, at: Timestamp) -> None:
        """Count so many more operations in a run, and unsettled ones."""
        waiting = self._sums.get(run)
        if waiting is not None:
            total = waiting[1]
            if not (operations or unsettled) and total.at >= at:
                return
            operations, unsettled = operations + total.operations, unsettled + total.unsettled
            at = max(at, total.at)
        self._set(self._sums, run, (self.seq, Sum(operations, unsettled, at)))
        self._waits = True

    def add_command(self, record: CommandRecord, run: int | None) -> CommandRow:
        """Make a command."""
        rowid = self.rows[1] or self._new_rowid("commands")
        self._new_commands.append((self.seq, new_command(record, rowid, run)))
        self._waits = True
        made = CommandRow(record, rowid, cast("int", run))
        self._set(self._commands, record.command_id, made)
        return made

    def set_receipt(self, command: int, seq: int, kind: str) -> None:
        """Give a command its receipt."""
        self._set(self._receipts, command, (self.seq, (seq, kind, command)))
        self._waits = True

    def add_operation(self, record: OperationRecord, command: int, run: int) -> OperationRow:
        """Make an operation, in whatever state it is."""
        rowid = self.rows[2] or self._new_rowid("operations")
        row = OperationRow(record, rowid, command, run, receipt_seq=None, listed=False, known=())
        self._set(self._operations, record.operation_id, row)
        self._set(self._new_operations, record.operation_id, self.seq)
        if record.write:
            self._alike.add((run, record.args_digest))
        self._waits = True
        self.count_in_run(run, 1, 0, record.accepted_at)
        self.move(None, record.state)
        return row

    def change_operation(self, before: OperationRow, after: OperationRow) -> None:
        """Write how an operation is by now."""
        operation_id = after.record.operation_id
        self._set(self._operations, operation_id, after)
        waiting = self._new_operations if operation_id in self._new_operations else self._changed_operations
        self._set(waiting, operation_id, self.seq)
        self._waits = True
        self.move(before.record.state, after.record.state)

    def move(self, before: State | None, after: State | None) -> None:
        """Count one operation under `after`, and no longer under `before`."""
        if before is after:
            return
        counts = self.head.counts
        for state, by in ((before, -1), (after, 1)):
            if state is not None:
                self._set(counts, state, counts[state] + by)

    def recent(self, operation_id: str) -> OperationRow | None:
        """Return an operation that is remembered."""
        return self._operations.get(operation_id)

    def _new_rowid(self, table: str) -> int:
        rowid = self._next.get(table)
        if rowid is None:
            found = super().look(f"last_of_{table}").fetchone()
            rowid = 1 + (found[0] or 0)
        self._set(self._next, table, rowid + 1)
        return rowid

    # ------------------------------------------------------------ catching up

    def catch_up(self) -> None:
        """Write everything that waits. Raises sqlite3.Error."""
        if not self._waits:
            return
        if self._undo.is_open and not self._saved:
            self._save()
        else:
            self._write_all()

    def write_head(self) -> None:
        """Write everything that waits, and the head, as the end of a commit."""
        self.catch_up()
        self._look_around()
        write_head(self.connection, self.head)
        self._seen = self.connection.total_changes

    def _write_all(self) -> None:
        own = self.connection.total_changes == self._seen
        seq = self.seq
        for name, writes in self._in_order():
            if writes:
                self._write_many(name, writes)
        self._settle()
        self._waits = False
        self.seq = seq
        if not own:  # somebody else has written before
            self._drop()

    def _write_many(self, name: str, writes: Iterable[_Write]) -> None:
        """Write rows of several units: what is wrong with one of them is not the present unit's error."""
        try:
            self.connection.executemany(STATEMENTS[name], self._parameters(writes))
        except OF_A_STATEMENT as error:
            detail = f"{name}, of rows that waited: {error}"
            raise JournalFailed(during="a statement", detail=detail) from error

    def _in_order(self) -> Iterator[tuple[str, Iterable[_Write]]]:
        yield "insert_run", self._new_runs
        yield "insert_command", self._new_commands
        yield "insert_operation", self._rows_of(self._new_operations, new_operation)
        yield "update_operation", self._rows_of(self._changed_operations, changed_operation)
        yield from self._appended.items()
        yield "set_receipt", list(self._receipts.values())
        yield "count_in_run", [(seq, (*total, run)) for run, (seq, total) in self._sums.items()]

    def _rows_of(self, waiting: dict[str, int], values: Callable[[OperationRow], Row]) -> list[_Write]:
        return [(seq, values(self._operations[name])) for name, seq in waiting.items()]

    def _parameters(self, writes: Iterable[_Write]) -> Iterator[Row]:
        """Yield what an `executemany` binds next, and note whose row that is."""
        for seq, parameters in writes:
            self.seq = seq
            yield parameters

    def _settle(self) -> None:
        """Nothing waits any more."""
        for items in self._lists:
            items.clear()
        for rowid, (_, more) in self._sums.items():
            name = self._run_names.get(rowid)
            if name is not None and (run := self._runs.get(name)) is not None and run.id == rowid:
                self._runs[name] = summed(run, more)
        for operation_id in (*self._new_operations, *self._changed_operations):
            if self._operations[operation_id].record.ended_at is not None:
                del self._operations[operation_id]
        while len(self._operations) > RECENT_MAX:
            del self._operations[next(iter(self._operations))]
        for kept in (
            self._commands,
            self._missing,
            self._receipts,
            self._new_operations,
            self._changed_operations,
            self._sums,
            self._alike,
            self._delivered,
        ):
            kept.clear()
        if len(self._runs) > RUNS_MAX:
            self._runs.clear()
            self._run_names.clear()
        self.waiting_bytes = 0
        self._undo.forget()
        self._seen = self.connection.total_changes
