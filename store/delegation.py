"""What became of an operation that was delegated to another run, from the records of that run.

Part of `store`; imports its own modules. A call may name the operation that it serves as its parent: the
runs of such calls are the parent's child runs.

Theory of operation
-------------------
**When.** A parent whose outcome is not known to be a success is judged by its child runs once all of them
have ended: where they executed nothing, it had no effect; where all that they did is settled, it had one;
otherwise nobody knows. While anything is still to come in a child run, or another attempt of one of its calls
is asked for, in whichever run, nothing is concluded. What is concluded is said of those attempts of the
parent that had begun before a child run did: what a later attempt has called for may only now be on its way.

**Which operations count.** Of a child run, the operations that name the parent, and those that name none;
where parent and children share a run, only those that name it. An operation that would be among its own
descendants has not been delegated: in a circle, everybody would prove what they were told.

**Whose word it is.** It ranks as the weakest evidence about a child that it rests on. Where a child is known
by an operator's verdict alone, the word about its parent is an operator's, too (`operator:delegation`); what
rests on answers alone is the daemon's. So no word gains rank by being passed on, and what somebody said of
the parent itself stands against a word of the same rank. What a supervisor inferred about a child settles
nothing here.

**How long it stands.** Only the newest of these words counts, whatever the rank of an earlier one: the others
were about fewer runs, or about less that was known of them. "It did nothing" stands as long as the records
say so: as soon as another call names the parent, or less is known of a child than was, it is taken back (by
an `unknown`, which says nothing of the parent) until all child runs have ended again. "It happened" stands
unless stronger evidence about the children says otherwise: what one of them did is not undone by another that
did nothing.

**What rests on it.** A child whose doing nothing proves that its parent did nothing gets no further attempt
(`idle_parent`), also once another attempt of the parent has begun: that one builds on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from store import pieces
from store.events import Draft, OperationReconciled
from store.head import Ledger
from store.lifecycle import RANK, Effect, Evidence, Judgement, Source, State, judge
from store.located import OperationRow, Row, command_row
from store.projection import DELEGATION
from store.records import OperationId, RunId
from store.tables import EVER, find_operation
from store.wanted import operation_named

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
    newest_seq: int
    """Of the first call of the run that began last."""
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
    rows = _child_runs(ledger, parent)
    return _delegation(ledger, parent, rows) if rows else None


def _child_runs(ledger: Ledger, parent: OperationRow) -> Sequence[Row]:
    asked: dict[str, object] = {"parent": parent.record.operation_id, "limit": CHILD_RUNS_MAX + 1}
    return sorted(ledger.execute("child_runs", asked).fetchall(), key=lambda row: int(row[3]))


def _delegation(ledger: Ledger, parent: OperationRow, rows: Sequence[Row]) -> Delegation | None:
    """Return what became of these child runs, one or more; None where their parent serves itself."""
    operation_id = parent.record.operation_id
    if _serves_itself(ledger, operation_id):
        return None
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
        newest_seq=max(row[4] for row in rows),
        ended=len(rows) <= CHILD_RUNS_MAX and all(row[2] for row in rows),
        total=total,
        unresolved=unresolved,
        executed=executed,
        source=min(sources, key=RANK.__getitem__),
    )


def conclusion(ledger: Ledger, operation_id: OperationId) -> Draft | None:
    """Return the daemon's word about a parent; None where its children prove nothing new."""
    parent = find_operation(ledger, operation_id)
    if parent is None or parent.record.state is State.SUCCEEDED or not parent.record.attempt_count:
        return None
    rows = _child_runs(ledger, parent)
    over = _attempts_over(ledger, parent) if rows else ()
    if not over:
        return None
    found, words = _delegation(ledger, parent, rows), _words(ledger, parent)
    word = _proven(ledger, parent, found, over, words) or _withdrawn(found, over, words)
    return None if word is None else Draft(data=word, operation_id=operation_id)


def _proven(
    ledger: Ledger, parent: OperationRow, found: Delegation | None, over: "_Attempts", words: "_Words"
) -> OperationReconciled | None:
    """Return what the child runs prove, where they prove anything new."""
    if found is None or not found.ended or parent.record.ended_at is None:
        return None
    served = [item for item in over if item[1] < found.newest_seq]
    if not served:
        return None
    attempt, started_seq = served[-1]
    if not _is_new(found, words, attempt) or _is_busy(ledger, found.run_ids):
        return None
    return _word(found.effect, found.source, _note(found), found.run_ids, started_seq)


def _withdrawn(found: Delegation | None, over: "_Attempts", words: "_Words") -> OperationReconciled | None:
    """Return what takes back that the parent did nothing, where that was said and is not proven any more."""
    attempt, started_seq = over[-1]
    was_idle = any(told.effect is Effect.NONE for told in _judged_by(words, attempt, passed_on=True))
    is_idle = found is not None and found.effect is Effect.NONE
    if is_idle or not was_idle:
        return None
    run_ids = () if found is None else found.run_ids
    return _word(Effect.UNKNOWN, Source.DAEMON, WITHDRAWN, run_ids, started_seq)


def idle_parent(ledger: Ledger, operation_id: OperationId) -> OperationId | None:
    """Return an operation that counts as not having happened because this one, in its service, did nothing.

    Or one of which another attempt has begun because of that, however many others are between. None where
    nobody has judged so, or somebody says otherwise.
    """
    child = find_operation(ledger, operation_id)
    if child is None:
        return None
    for number, above in enumerate(_above(ledger, operation_id)):
        if number >= ANCESTORS_MAX or _was_relied_on(ledger, above, child):
            return above
    for (served,) in ledger.execute("served_by", {"operation": operation_id}).fetchall():
        parent = find_operation(ledger, served)
        if parent is not None and parent.record.effect is Effect.NONE:
            found = delegation(ledger, parent)
            if found is not None and found.effect is Effect.NONE:
                return OperationId(served)
    return None


def _was_relied_on(ledger: Ledger, above: OperationId, child: OperationRow) -> bool:
    """Whether an attempt of an operation began because it counted as not having happened, behind a child."""
    row = find_operation(ledger, above)
    if row is None:
        return False
    asked: dict[str, object] = {"operation": row.id, "child": child.record.accepted_seq}
    return bool(ledger.execute("relied_on", asked).fetchone()[0])


def parents(ledger: Ledger, run: int, run_id: RunId) -> Iterator[OperationId]:
    """Yield the operations that a run serves, if it has ended."""
    if ledger.has_ended(run_id):
        yield from dict.fromkeys(row[0] for row in ledger.execute("parents_of_ended_run", (run,)).fetchall())


def _is_busy(ledger: Ledger, run_ids: Sequence[RunId]) -> bool:
    """Whether something in the runs is still to come: a call, or another attempt of one."""
    if any(ledger.execute("open_commands_of_run", (run_id, 0, 1)).fetchone() for run_id in run_ids):
        return True
    return any(row.record.run_id in run_ids for row in _asked_for(ledger))


def _asked_for(ledger: Ledger) -> Iterator[OperationRow]:
    """Yield the operations that another attempt is asked for of, by a command of whichever run."""
    for asking in ledger.execute("open_retries").fetchall():
        accepted_seq = command_row(asking).record.accepted_seq
        assert accepted_seq is not None, "what is open was accepted"
        named = operation_named(pieces.payload(ledger, accepted_seq))
        row = None if named is None else find_operation(ledger, named)
        if row is not None:
            yield row


def _serves_itself(ledger: Ledger, operation_id: OperationId) -> bool:
    return any(
        served == operation_id or number >= ANCESTORS_MAX
        for number, served in enumerate(_above(ledger, operation_id))
    )


def _above(ledger: Ledger, operation_id: OperationId) -> Iterator[OperationId]:
    """Yield the operations that one serves, directly or through others, each once; itself where it does."""
    seen: set[str] = set()
    waiting: list[str] = [operation_id]
    while waiting:
        for (served,) in ledger.execute("served_by", {"operation": waiting.pop()}).fetchall():
            if served not in seen:
                seen.add(served)
                waiting.append(served)
                yield OperationId(served)


_Attempts = Sequence[tuple[int, int]]
"""Attempts, in order, with the seqs of their intents."""


def _attempts_over(ledger: Ledger, parent: OperationRow) -> _Attempts:
    """Return the attempts that have ended, and may have done something."""
    return ledger.execute("attempts_over", (parent.id,)).fetchall()


_Words = Sequence[tuple[bool, Evidence]]
"""What is known of a parent, and of each whether it is the newest word about its child runs."""


def _words(ledger: Ledger, parent: OperationRow) -> _Words:
    rows = ledger.execute("evidence_to_judge", {"operation": parent.id, "before": EVER}).fetchall()
    return [
        (bool(passed_on), Evidence(attempt, Effect(effect), Source(source)))
        for _, attempt, effect, source, passed_on in rows
    ]


def _judged_by(words: _Words, attempts: int, *, passed_on: bool) -> Sequence[Evidence]:
    """Return what the first attempts are judged by: from elsewhere, or by the word about the child runs."""
    return [word for from_children, word in words if from_children is passed_on and word.attempt <= attempts]


def _is_new(found: Delegation, words: _Words, attempts: int) -> bool:
    """Whether what the child runs prove is to be said of the first attempts of their parent."""
    own, told = (judge(_judged_by(words, attempts, passed_on=it), attempts) for it in (False, True))
    return found.effect is not Effect.UNKNOWN and _counts(found, own) and _is_news(found, told)


def _counts(found: Delegation, own: Judgement) -> bool:
    """Whether the word would not have to yield to what is known of the parent itself, and not repeat it."""
    if own.by is None or RANK[own.by] != RANK[found.source]:
        return own.by is None or RANK[own.by] < RANK[found.source]
    if found.source is Source.OPERATOR:
        return False  # of operators' words the newest stands, and a person's is not to be replaced by this
    return own.effect is not found.effect and own.effect is not Effect.OCCURRED


def _is_news(found: Delegation, told: Judgement) -> bool:
    """Whether the word says more than the one before it, or something else that may replace it."""
    if told.by is None:
        return True
    rises = RANK[found.source] - RANK[told.by]
    if found.effect is Effect.OCCURRED:
        return told.effect is not Effect.OCCURRED or rises > 0
    if told.effect is Effect.NONE:
        return rises != 0  # it is as certain as the least certain of the children, and no more
    return rises > 0 or (rises == 0 and found.source is Source.OPERATOR)


WITHDRAWN: Final = "its records do not say any more that its child runs did nothing"
"""The note of a word that says nothing of the parent, in place of one that did."""


def _word(
    effect: Effect, source: Source, note: str, run_ids: Sequence[RunId], started_seq: int
) -> OperationReconciled:
    return OperationReconciled(
        effect=effect,
        actor=f"{source}:{DELEGATION}",
        basis=DELEGATION,
        note=note,
        evidence=tuple(f"run:{run_id}" for run_id in run_ids[:EVIDENCE_MAX]),
        started_seq=started_seq,
    )


def _note(found: Delegation) -> str:
    runs = "the child run has" if len(found.run_ids) == 1 else f"all {len(found.run_ids)} child runs have"
    if found.effect is Effect.NONE:
        return f"{runs} ended, and none of {found.total} operations was executed"
    return f"{runs} ended, and all of {found.total} operations are settled"
