"""What became of an operation that was delegated to another run, from the records of that run.

Part of `store`; imports its own modules. A call may name the operation that it serves as its parent: the
runs of such calls are the parent's child runs.

Theory of operation
-------------------
A parent that failed, or whose outcome is unknown, is judged by what its child runs did, once all of them
have ended: where nothing was executed it had no effect, where everything is settled it had one, and else
nobody knows. The records of a child run are the operations that name the parent, and those that name none;
where a parent and its children share a run, only those that name it. An operation that would be among its
own descendants has not been delegated: in a circle everybody would prove what they were told.

The word about the parent ranks as the weakest evidence about a child that it rests on: what is known of one
child by an operator's verdict alone is, of the parent, an operator's word (`operator:delegation`), and only
what answers prove is the daemon's. So nobody's word gains rank by being passed on, and what somebody said of
the parent itself stands against a word of the same rank. What a supervisor inferred about a child settles
nothing here.

It is what the child runs that are known by then prove. Of one that begins later the journal learns what it
can: where that contradicts, the parent's effect is judged anew. A child on which it rests that its parent did
nothing gets no further attempt (`idle_parent`): weaker evidence of what that came to could not take the word
back, and meanwhile others build on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from store.events import Draft, OperationReconciled
from store.head import Ledger
from store.lifecycle import RANK, Effect, Source, State
from store.located import OperationRow
from store.records import OperationId, OperationRecord, RunId
from store.tables import find_operation

ACTOR: Final = "delegation"
"""Who says what the child runs prove about their parent, behind the source that the word is worth."""
CHILD_RUNS_MAX: Final = 256
"""Child runs of one operation that are looked at; with more, nothing is concluded."""
ANCESTORS_MAX: Final = 1_024
"""Operations above one that are looked at; one with more counts as its own descendant."""
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
    source: Source
    """The weakest that any of them is known by. What is proven is the daemon's to say."""

    @property
    def effect(self) -> Effect:
        """What the records prove about the parent."""
        if not self.ended:
            return Effect.UNKNOWN
        if not self.executed:
            return Effect.NONE
        return Effect.UNKNOWN if self.unresolved else Effect.OCCURRED


def delegation(ledger: Ledger, parent: OperationRow) -> Delegation | None:
    """Return what became of the runs that serve an operation; None where there is none.

    None also of one that serves itself, however many others are between.
    """
    operation_id = parent.record.operation_id
    rows = ledger.execute("child_runs", {"parent": operation_id, "limit": CHILD_RUNS_MAX + 1}).fetchall()
    if not rows or _serves_itself(ledger, operation_id):
        return None
    rows.sort(key=lambda row: int(row[3]))
    total = unresolved = executed = 0
    sources = {Source.DAEMON}
    for run, *_ in rows[:CHILD_RUNS_MAX]:
        counted: dict[str, object] = {"run": run, "parent": operation_id, "whole_run": int(run != parent.run)}
        counts = ledger.execute("children", counted).fetchone()
        total, unresolved, executed = total + counts[0], unresolved + counts[1], executed + counts[2]
        said = zip((Source.OPERATOR, Source.PROBE), counts[3:], strict=True)
        sources.update(source for source, found in said if found)
    return Delegation(
        run_ids=tuple(run_id for _, run_id, *_ in rows[:CHILD_RUNS_MAX]),
        ended=len(rows) <= CHILD_RUNS_MAX and all(ended for _, _, ended, _ in rows),
        total=total,
        unresolved=unresolved,
        executed=executed,
        source=min(sources, key=RANK.__getitem__),
    )


def conclusion(ledger: Ledger, operation_id: OperationId) -> Draft | None:
    """Return the daemon's word about a parent; None where its children prove nothing new."""
    parent = find_operation(ledger, operation_id)
    if parent is None or parent.record.state not in (State.FAILED, State.UNKNOWN):
        return None
    found = delegation(ledger, parent)
    if found is None or found.effect is Effect.UNKNOWN or _says_so(ledger, parent.record, found):
        return None
    if any(_is_busy(ledger, run_id) for run_id in found.run_ids):
        return None
    data = OperationReconciled(
        effect=found.effect,
        actor=f"{found.source}:{ACTOR}",
        basis="delegation",
        note=_note(found),
        evidence=tuple(f"run:{run_id}" for run_id in found.run_ids[:EVIDENCE_MAX]),
        started_seq=parent.record.started_seq,
    )
    return Draft(data=data, operation_id=operation_id)


def idle_parent(ledger: Ledger, operation_id: OperationId) -> OperationId | None:
    """Return an operation that counts as not having happened because this one, in its service, did nothing.

    None where there is none; where nobody has judged it so, or somebody says otherwise, it is not that.
    """
    rows = ledger.execute("served_by", {"operation": operation_id}).fetchall()
    for served in dict.fromkeys(OperationId(row[0]) for row in rows):
        parent = find_operation(ledger, served)
        if parent is None or parent.record.effect is not Effect.NONE or parent.record.ended_at is None:
            continue
        found = delegation(ledger, parent)
        if found is not None and found.effect is Effect.NONE:
            return served
    return None


def parents(ledger: Ledger, run: int, run_id: RunId) -> Iterator[OperationId]:
    """Yield the operations that a run serves, if it has ended and none of its calls is open."""
    if ledger.has_ended(run_id) and not _is_busy(ledger, run_id):
        yield from dict.fromkeys(row[0] for row in ledger.execute("parents_of_ended_run", (run,)).fetchall())


def _is_busy(ledger: Ledger, run_id: RunId) -> bool:
    """Whether something in the run is still to come: a call, or another attempt of one."""
    return ledger.execute("open_commands_of_run", (run_id, 0, 1)).fetchone() is not None


def _serves_itself(ledger: Ledger, operation_id: OperationId) -> bool:
    seen: set[OperationId] = set()
    above = [operation_id]
    while above:
        for (served,) in ledger.execute("served_by", {"operation": above.pop()}).fetchall():
            if served == operation_id or len(seen) >= ANCESTORS_MAX:
                return True
            if served not in seen:
                seen.add(served)
                above.append(served)
    return False


def _says_so(ledger: Ledger, parent: OperationRecord, found: Delegation) -> bool:
    """Whether the word about a parent would change nothing, or would have to yield to what is said of it."""
    if parent.effect_by is None or RANK[parent.effect_by] != RANK[found.source]:
        return parent.effect_by is not None and RANK[parent.effect_by] > RANK[found.source]
    if found.source is not Source.OPERATOR:
        return parent.effect is found.effect or parent.effect is Effect.OCCURRED
    # of operators' words the newest stands: a person's about the parent itself is not to be replaced by this
    (newest,) = ledger.execute("newest_operators_word", (parent.operation_id,)).fetchone()
    return parent.effect is found.effect or newest != f"{found.source}:{ACTOR}"


def _note(found: Delegation) -> str:
    runs = "the child run has" if len(found.run_ids) == 1 else f"all {len(found.run_ids)} child runs have"
    if found.effect is Effect.NONE:
        return f"{runs} ended, and none of {found.total} operations was executed"
    return f"{runs} ended, and all of {found.total} operations are settled"
