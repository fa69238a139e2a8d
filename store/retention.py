"""Prunes what is over, acknowledged and old: a bounded step at a time, and every trace that must stay, stays.

Part of `store`; imports its own modules. Runs in the owner's thread, as a unit of a group commit.

Theory of operation
-------------------
What is pruned together is a **command with all that belongs to it**: for a call, its operation and every
event of that. It goes when the table of states (`lifecycle.is_erasable`) allows it, when its
newest event is older than `retention`, when the plane has acknowledged that event, and when nothing that is
kept depends on it: its parent operation, the operation that it compensates, a dead letter among its events,
an open command that is about it (`store.wanted`).

In a child run, a call that names no parent counts for the parent, too (`store.delegation`). So it stays as
long as that parent does, where the parent is older and of another run: a pass meets the parent first, and
notes the child runs of one that stays. A call that is older than the parent is no part of the delegation, so
two runs that serve each other do not keep each other for ever.

A supervisor's word is kept for `retention_unknown`. The newest event of the journal always stays.

Three things are left behind, each under a digest of its own, because no event repeats them:

* a **tombstone** for the command: redelivered, it is answered `retired`; its look-alikes are judged by it;
* a **gap** for the events: from where to where, and the hash chain as of its end, so that the chain of what
  is kept can still be followed, and the link can bridge what it cannot send. Gaps that touch become one;
* a **trace** for the run: what it was when something of it was last pruned.

A pass goes once over the commands from the oldest on, then over the events that belong to no command, then
over the tombstones whose own time is over, and then hands free pages back to the file system. It forgets
where it was when the process ends: the next one begins anew, and passes what it cannot prune in pages.

Commands and tombstones stand in the order in which they came, so a pass ends at the first that is young. Two
things break that order: a clock that was ahead for a while, and a command that another history accepted once
more, at its old place. A time that is still to come ends no pass; and a **thorough** pass, once an hour, goes
over all of them.

A step is bounded by time and by bytes (`store.pace`), and begins nothing once either is used up; the smallest
thing that it does is one command. Long payloads stand in pieces, which later commits remove (`store.pieces`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from store import gaps
from store.batches import Batches
from store.connection import PAGE_BYTES
from store.delegation import CHILD_RUNS_MAX
from store.erasure import debt
from store.events import SupervisorVerdict
from store.head import Ledger, row_digest
from store.lifecycle import Source, is_erasable, is_settled
from store.located import OperationRow, Row
from store.pace import Budget
from store.projection import standing_of
from store.records import COMPENSATION_PREFIX, TOOL_CALL, OperationId, Timestamp, timestamp
from store.tables import find_operation
from store.transaction import Transaction
from store.wanted import Wanted, wanted

LOOKED_AT: Final = 64
"""Rows that a step looks at before it looks at the clock again."""
VACUUM_PAGES: Final = 16
"""Pages handed back before a step looks at the clock again: each is moved from the end of the file."""
SLACK_PAGES: Final = 64
"""Free pages that stay in the file: new events take them first."""

THOROUGH_S: Final = 3_600.0
"""Between two passes that go behind what is young: they look at every command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long what is kept. The defaults are those of docs/configuration.md."""

    retention: timedelta = timedelta(days=30)
    retention_unknown: timedelta = timedelta(days=365)
    tombstones: timedelta = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step did."""

    commands: int = 0
    """Pruned, each with its operation and its events."""
    events: int = 0
    tombstones: int = 0
    """Whose own time was over."""
    pages: int = 0
    """Handed back to the file system with the next checkpoint."""
    finished: bool = False
    """Whether the pass is over."""

    def then(self, other: "Step") -> "Step":
        """Return what this step and the one after it did together."""
        return Step(
            commands=self.commands + other.commands,
            events=self.events + other.events,
            tombstones=self.tombstones + other.tombstones,
            pages=self.pages + other.pages,
            finished=other.finished,
        )


class _Tally:
    """Counts what a step does, and says when it is long enough."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._stopped = False
        self.commands = self.events = self.tombstones = self.pages = 0

    @property
    def spent(self) -> bool:
        return self._stopped or self._budget.spent

    def stop(self) -> None:
        self._stopped = True

    def has_room(self, count: int) -> bool:
        return self._budget.has_room(count)

    def overwritten(self, count: int) -> None:
        self._budget.take(count)

    def step(self, *, finished: bool) -> Step:
        return Step(
            commands=self.commands,
            events=self.events,
            tombstones=self.tombstones,
            pages=self.pages,
            finished=finished,
        )


class Retention:
    """One pass after the other over a journal. Made for one process life."""

    def __init__(self, settings: RetentionSettings) -> None:
        self._settings: Final = settings
        self._phases: Final = (self._commands, self._loose, self._loose_of_runs, self._graves, self._vacuum)
        self._phase = 0
        self._after: tuple[int, int] = (0, 0)
        self._is_thorough = False
        """Whether the present pass goes over everything."""
        self._thorough_at_s: float | None = None
        self._forgotten: deque[int] = deque()
        """Runs of which nothing may be left."""
        self._serving: set[int] = set()
        """Child runs of the calls that this pass came to, and that stay."""
        self._wanted: Wanted | None = None
        """As of this step, once it was asked for."""

    def step(self, tx: Transaction) -> Step:
        """Go on with the pass for some milliseconds; the step after a finished one begins the next pass.

        A fenced journal is left as it is: what it holds may be what tells two histories apart. What is to be
        erased on demand goes first, and so do the pieces that pruning leaves: then a step does nothing.
        """
        if tx.fence is not None:
            return Step(finished=True)
        if debt(tx.ledger).demanded:
            return Step()
        self._wanted = None
        with tx.ledger.pace.step() as budget:
            tally = _Tally(budget)
            finished = self._go_on(tx, tally)
        step = tally.step(finished=finished)
        tx.ledger.pace.used(scatters=bool(step.commands or step.events or step.tombstones or step.pages))
        return step

    def _go_on(self, tx: Transaction, tally: _Tally) -> bool:
        """Go on until the budget is spent, or the pass is over. Returns whether it is."""
        while not tally.spent:
            if self._phases[self._phase](tx, tally):
                continue
            self._after = (0, 0)
            self._serving.clear()
            self._phase = (self._phase + 1) % len(self._phases)
            if self._phase == 0:
                self._plan_next(tx.ledger.pace.clock())
                return True
        return False

    def _plan_next(self, now_s: float) -> None:
        self._is_thorough = self._thorough_at_s is not None and now_s >= self._thorough_at_s
        if self._is_thorough or self._thorough_at_s is None:
            self._thorough_at_s = now_s + THOROUGH_S

    def _is_in_order(self, tx: Transaction, at: Timestamp) -> bool:
        """Whether all behind a row that is young by its time are young, too: nobody looks at them then.

        Not where that time is still to come: the clock was ahead. A thorough pass trusts no time.
        """
        return at <= timestamp(tx.now) and not self._is_thorough

    # ------------------------------------------------------------ phases: each returns whether there is more

    def _commands(self, tx: Transaction, tally: _Tally) -> bool:
        cutoff = timestamp(tx.now - self._settings.retention)
        rows = tx.ledger.execute("commands_to_prune", (self._after[0], LOOKED_AT)).fetchall()
        for row in rows:
            is_young = row[3] >= cutoff or (row[4] or 0) > tx.acked_seq
            if is_young and self._is_in_order(tx, row[3]):
                return False  # and so are all behind it
            pruning = None if is_young else self._pruning(tx, row, cutoff)
            if pruning is None:
                self._serving.update(() if row[2] is None else _child_runs(tx.ledger, row[2]))
            else:
                if not tally.has_room(pruning.weight):
                    tally.stop()
                    return True
                _prune(tx, pruning, tally)
                if not pruning.commands:
                    return True
            self._after = (row[0], 0)
            if tally.spent:
                return True
        return len(rows) == LOOKED_AT

    def _loose(self, tx: Transaction, tally: _Tally) -> bool:
        """Events that belong to nothing: what happened to the daemon."""
        rows = tx.ledger.execute("events_alone", (self._after[1], LOOKED_AT)).fetchall()
        return self._prune_alone(tx, rows, tally)

    def _loose_of_runs(self, tx: Transaction, tally: _Tally) -> bool:
        """Events that belong to a run alone: verdicts."""
        rows = tx.ledger.execute("events_alone_of_runs", (*self._after, LOOKED_AT)).fetchall()
        return self._prune_alone(tx, rows, tally)

    def _prune_alone(self, tx: Transaction, rows: Sequence[Row], tally: _Tally) -> bool:
        for seq, at, kind, run in rows:
            self._after = (run or 0, seq)
            keep = self._settings.retention_unknown if kind == _VERDICT else self._settings.retention
            if at < timestamp(tx.now - keep) and _may_go(tx, seq):
                _prune_events(tx, (seq,), run, tally)
            if tally.spent:
                return True
        return len(rows) == LOOKED_AT

    def _graves(self, tx: Transaction, tally: _Tally) -> bool:
        while self._forgotten:
            self._forgotten.extend(_forget_run(tx.writing(), self._forgotten.popleft()))
            if tally.spent:
                return True
        cutoff = timestamp(tx.now - self._settings.tombstones)
        rows = tx.ledger.execute("oldest_tombstones", (self._after[0], LOOKED_AT)).fetchall()
        for rowid, run, pruned_at in rows:
            if pruned_at < cutoff:
                tx.writing().execute("delete_tombstone", (rowid,))
                tally.tombstones += 1
                if run is not None:
                    self._forgotten.append(run)
            elif self._is_in_order(tx, pruned_at):
                return bool(self._forgotten)
            self._after = (rowid, 0)
            if tally.spent:
                return True
        return bool(self._forgotten) or len(rows) == LOOKED_AT

    def _vacuum(self, tx: Transaction, tally: _Tally) -> bool:
        connection = tx.ledger.connection
        free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
        count = min(VACUUM_PAGES, free - SLACK_PAGES)
        if count <= 0:
            return False
        vacuum = tx.writing().connection.execute
        for _ in range(count):
            # one page a step of the pragma, and Python takes but one step of what has no columns
            vacuum("PRAGMA incremental_vacuum(1)")
        tally.pages += count
        tally.overwritten(count * PAGE_BYTES)
        return True

    # ------------------------------------------------------------ what may go

    def _pruning(self, tx: Transaction, row: Row, cutoff: Timestamp) -> "_Pruning | None":
        """Return what is pruned with a command; None where it stays."""
        command, command_id, target, _, accepted_seq, receipt_seq, kind = row
        if receipt_seq is None or not _is_independent(tx, command_id):
            return None
        ledger = tx.ledger
        if kind == TOOL_CALL and accepted_seq is not None:
            operation = find_operation(ledger, target)
            if operation is None or not self._is_over(tx, operation) or self._is_wanted(tx, operation):
                return None
            if stale := gaps.replaced(ledger, operation, cutoff):
                return _Pruning((), operation, stale, gaps.weight(ledger, stale))
            events = ledger.execute("events_to_prune", (operation.id,)).fetchall()
        else:
            if target is not None and find_operation(ledger, target) is not None:
                return None  # it goes with its operation
            operation = None
            recorded = [seq for (seq,) in ledger.execute("events_of_command", (command,))]
            seqs = sorted({seq for seq in (*recorded, accepted_seq, receipt_seq) if seq is not None})
            events = [ledger.execute("event_to_prune", (seq,)).fetchone() for seq in seqs]
        commands = tuple(dict.fromkeys((command, *(event[2] for event in events))))
        is_old = all(event[1] < cutoff for event in events)
        if not is_old or not all(_may_go(tx, event[0]) for event in events):
            return None
        if any(ledger.execute("receipt_of", (each,)).fetchone()[0] is None for each in commands):
            return None  # something about the operation is still to be answered
        going = tuple(event[0] for event in events)
        return _Pruning(commands, operation, going, gaps.weight(ledger, going))

    def _is_wanted(self, tx: Transaction, row: OperationRow) -> bool:
        if self._wanted is None:
            self._wanted = wanted(tx.ledger)
        return self._wanted.has(row)

    def _is_over(self, tx: Transaction, row: OperationRow) -> bool:
        record, standing = row.record, standing_of(row.record)
        parent = record.parent_operation_id
        if row.run in self._serving if parent is None else find_operation(tx.ledger, parent) is not None:
            return False  # its parent's effect is judged by it
        if is_erasable(standing):
            return True
        if not is_settled(standing) or standing.judgement.by is not Source.SUPERVISOR:
            return False
        newest = tx.ledger.execute("events_to_prune", (row.id,)).fetchall()[-1][1]
        return bool(newest < timestamp(tx.now - self._settings.retention_unknown))


_VERDICT: Final = SupervisorVerdict.KIND


@dataclass(frozen=True, slots=True)
class _Pruning:
    """What goes at once: these commands, of which the first may have an operation, and these events.

    No command: some events of an operation that has more than go at once.
    """

    commands: tuple[int, ...]
    operation: OperationRow | None
    seqs: tuple[int, ...]
    weight: int
    """How many bytes are overwritten."""


def _may_go(tx: Transaction, seq: int) -> bool:
    """Whether the plane has the event, and nobody has to look at it any more."""
    if seq > tx.acked_seq or seq >= tx.last_seq:
        return False
    return tx.ledger.execute("is_dead_letter", (seq,)).fetchone() is None


def _is_independent(tx: Transaction, command_id: str) -> bool:
    """A compensation stays with what it compensates, so that there is never a second one."""
    if not command_id.startswith(COMPENSATION_PREFIX):
        return True
    return find_operation(tx.ledger, OperationId(command_id.removeprefix(COMPENSATION_PREFIX))) is None


def _child_runs(ledger: Ledger, operation_id: OperationId) -> Iterator[int]:
    """Yield the runs whose calls name an operation: as many as it may be judged by, one seek for each."""
    run, served = 0, None
    for _ in range(CHILD_RUNS_MAX):
        found = ledger.execute("next_child_run", (operation_id, run)).fetchone()
        if found is None:
            return
        (run,) = found
        served = served or find_operation(ledger, operation_id)
        if served is not None and run != served.run:  # of its own run those count that name it, and no others
            yield run


# ------------------------------------------------------------ what goes, and what is left of it


def _prune(tx: Transaction, pruning: _Pruning, tally: _Tally) -> None:
    ledger = tx.writing()
    runs: dict[int, None] = {}
    for command in pruning.commands:
        run = _bury(ledger, command, pruning.operation, timestamp(tx.now))
        if run is not None:
            runs[run] = None
    if pruning.operation is not None:
        runs[pruning.operation.run] = None
    for run in runs:
        gaps.trace(ledger, run)
    gaps.remove(ledger, pruning.seqs)
    tally.overwritten(pruning.weight)
    if pruning.operation is not None and pruning.commands:
        _delete_operation(ledger, pruning.operation)
    for command in pruning.commands:
        for statement in ("delete_deliveries", "delete_erasure", "delete_walk", "delete_command"):
            ledger.execute(statement, (command,))
    tally.commands += len(pruning.commands)
    tally.events += len(pruning.seqs)


def _bury(ledger: Ledger, command: int, of: OperationRow | None, pruned_at: Timestamp) -> int | None:
    """Leave a tombstone for a command. Returns its run's rowid."""
    command_id, run, kind, seq, content_digest, operation_id = ledger.execute(
        "command_to_bury", (command,)
    ).fetchone()
    row: tuple[str | int | None, ...] = (command_id, run, kind, seq, content_digest, operation_id)
    if of is not None and of.command == command:
        record = of.record
        by = None if record.effect_by is None else record.effect_by.value
        row += (record.args_digest, int(record.write), record.state.value, record.effect.value, by)
    else:
        row += (None, None, None, None, None)
    row += (pruned_at,)
    ledger.execute("insert_tombstone", (*row, row_digest(*row)))
    return None if run is None else int(run)


def _prune_events(tx: Transaction, seqs: Sequence[int], run: int | None, tally: _Tally) -> None:
    ledger = tx.writing()
    if run is not None:
        gaps.trace(ledger, run)
    tally.overwritten(gaps.weight(ledger, seqs))
    gaps.remove(ledger, seqs)
    tally.events += len(seqs)


def _delete_operation(ledger: Batches, row: OperationRow) -> None:
    for statement in ("delete_attempts", "delete_evidence", "delete_observations", "delete_operation"):
        ledger.execute(statement, (row.id,))
    ledger.execute("uncount_in_run", (row.run,))
    ledger.move(row.record.state, None)


def _forget_run(ledger: Ledger, run: int) -> list[int]:
    """Remove a run of which nothing is left. Returns those that it has resumed: they may be next."""
    if ledger.execute("is_run_in_use", {"run": run}).fetchone()[0]:
        return []
    resumed = [each for (each,) in ledger.execute("resumed_by_rowid", (run,))]
    for statement in ("delete_trace", "delete_triage", "delete_run_links", "delete_run"):
        ledger.execute(statement, (run,))
    return resumed
