"""What became of an operation that was delegated to another run, from the records of that run.

Part of `store`; imports its own modules. A call may name the operation that it serves as its parent: the
runs of such calls are the parent's child runs.

Theory of operation
-------------------
A parent that failed, or whose outcome is unknown, is judged by what its child runs did, once all of them
have ended: where nothing was executed it had no effect, where everything is settled it had one, and else
nobody knows. The records of a child run are the operations that name the parent, and those that name none;
where a parent and its children share a run, only those that name it.

What a supervisor inferred about a child settles nothing here: the conclusion about the parent is the
daemon's, and must not rest on a guess.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from store.events import Draft, OperationReconciled
from store.head import Ledger
from store.lifecycle import RANK, RANK_MAX, Effect, State
from store.records import OperationId, OperationRecord, RunId
from store.tables import OperationRow, find_operation

ACTOR: Final = "daemon:delegation"
"""Who says what the child runs prove about their parent."""
CHILD_RUNS_MAX: Final = 256
"""Child runs of one operation that are looked at; with more, nothing is concluded."""
EVIDENCE_MAX: Final = 32
"""Child runs that one word names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The child runs of an operation, the first one first, and their operations together."""

    run_ids: tuple[RunId, ...]
    ended: bool
    """Whether all of the runs have."""
    total: int
    unresolved: int
    """Those that have not ended, or of which nobody but perhaps a supervisor knows whether they happened."""
    executed: int
    """Those that are not proven to have done nothing."""

    @property
    def effect(self) -> Effect:
        """What the records prove about the parent."""
        if not self.ended:
            return Effect.UNKNOWN
        if not self.executed:
            return Effect.NONE
        return Effect.UNKNOWN if self.unresolved else Effect.OCCURRED


def delegation(ledger: Ledger, parent: OperationRow) -> Delegation | None:
    """Return what became of the runs that serve an operation; None where there is none."""
    operation_id = parent.record.operation_id
    rows = ledger.execute("child_runs", {"parent": operation_id, "limit": CHILD_RUNS_MAX + 1}).fetchall()
    if not rows:
        return None
    rows.sort(key=lambda row: int(row[3]))
    total = unresolved = executed = 0
    for run, *_ in rows[:CHILD_RUNS_MAX]:
        counted: dict[str, object] = {"run": run, "parent": operation_id, "whole_run": int(run != parent.run)}
        counts = ledger.execute("children", counted).fetchone()
        total, unresolved, executed = total + counts[0], unresolved + counts[1], executed + counts[2]
    return Delegation(
        run_ids=tuple(run_id for _, run_id, *_ in rows[:CHILD_RUNS_MAX]),
        ended=len(rows) <= CHILD_RUNS_MAX and all(ended for _, _, ended, _ in rows),
        total=total,
        unresolved=unresolved,
        executed=executed,
    )


def conclusion(ledger: Ledger, operation_id: OperationId) -> Draft | None:
    """Return the daemon's word about a parent; None where its children prove nothing new."""
    parent = find_operation(ledger, operation_id)
    if parent is None or parent.record.state not in (State.FAILED, State.UNKNOWN):
        return None
    found = delegation(ledger, parent)
    if found is None or found.effect is Effect.UNKNOWN or _says_so(parent.record, found.effect):
        return None
    data = OperationReconciled(
        effect=found.effect,
        actor=ACTOR,
        basis="delegation",
        note=_note(found),
        evidence=tuple(f"run:{run_id}" for run_id in found.run_ids[:EVIDENCE_MAX]),
        started_seq=parent.record.started_seq,
    )
    return Draft(data=data, operation_id=operation_id)


def parents(ledger: Ledger, run: int, run_id: RunId) -> Iterator[OperationId]:
    """Yield the operations that a run serves, if it has ended and none of its calls is open."""
    if ledger.execute("open_commands_of_run", (run_id, 0, 1)).fetchone() is not None:
        return
    yield from dict.fromkeys(row[0] for row in ledger.execute("parents_of_ended_run", (run,)).fetchall())


def _says_so(parent: OperationRecord, effect: Effect) -> bool:
    """Whether nothing would change. What happened on the highest rank's word needs no second one."""
    if parent.effect_by is None or RANK[parent.effect_by] < RANK_MAX:
        return False
    return parent.effect is effect or parent.effect is Effect.OCCURRED


def _note(found: Delegation) -> str:
    runs = "the child run has" if len(found.run_ids) == 1 else f"all {len(found.run_ids)} child runs have"
    if found.effect is Effect.NONE:
        return f"{runs} ended, and none of {found.total} operations was executed"
    return f"{runs} ended, and all of {found.total} operations are settled"
