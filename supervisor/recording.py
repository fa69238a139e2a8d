"""A verdict, and its rulings, in one transaction: only what is still unsettled is settled by it.

Part of `supervisor`; imports `store` and its `verdict` and `wall`.

It is recorded as any other verdict is: as an `operation.reconciled`, which the journal weighs by its rank
(`store.lifecycle.judge`). The rank of a supervisor's word is the lowest there is: it closes a listing, it is
marked as best effort, and it makes nothing execute.
"""

from dataclasses import dataclass
from typing import Final

from store.events import Draft, OperationReconciled, SupervisorVerdict
from store.lifecycle import Source
from store.projection import actor_of
from store.records import OperationId
from store.transaction import Transaction
from supervisor.prompt import PROMPT_VERSION
from supervisor.verdict import Answer, Ruling, rule
from supervisor.wall import Entry, Wall

BASIS: Final = "wall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was said of a wall, by whom, and how it came about: `answered`, `repaired` or `fallback`."""

    wall: Wall
    answer: Answer
    model: str
    status: str


def record(tx: Transaction, verdict: Verdict) -> tuple[OperationId, ...]:
    """Record the verdict and a ruling for each operation that it still settles; return these operations.

    Where there are none nothing is recorded. What ended, was settled or began another attempt since the wall
    was read is left as it is: what is still unsettled of it comes on another wall.
    """
    wall, answer = verdict.wall, verdict.answer
    rulings = {ruling.operation_id: ruling for ruling in rule(wall.operation_ids, answer)}
    settling = [entry for entry in wall.entries if _is_as_shown(tx, entry)]
    tx.end_triage(wall.run_id)
    if not settling:
        return ()
    settled = tuple(entry.operation_id for entry in settling)
    said = SupervisorVerdict(
        needs_attention=answer.needs_attention,
        summary=answer.summary,
        causes=answer.causes,
        remedies=answer.remedies,
        lesson=answer.lesson,
        operation_ids=settled,
        wall_digest=wall.digest,
        model=verdict.model,
        status=verdict.status,
        prompt_version=PROMPT_VERSION,
    )
    tx.append(Draft(data=said, run_id=wall.run_id, best_effort=True))
    for entry in settling:
        data = _reconciled(entry, rulings[entry.operation_id], verdict)
        tx.append(Draft(data=data, operation_id=entry.operation_id, best_effort=True))
    return settled


def _is_as_shown(tx: Transaction, entry: Entry) -> bool:
    """Whether the operation is listed as unsettled, with the attempts that the model was shown."""
    record = tx.operation(entry.operation_id)
    return (
        record is not None
        and record.ended_at is not None
        and not record.settled
        and (record.started_seq, record.attempt_count) == (entry.started_seq, entry.attempt_count)
    )


def _reconciled(entry: Entry, ruling: Ruling, verdict: Verdict) -> OperationReconciled:
    return OperationReconciled(
        effect=ruling.effect,
        actor=actor_of(Source.SUPERVISOR, verdict.model),
        basis=BASIS,
        note=ruling.basis,
        evidence=(f"wall:{verdict.wall.digest}",),
        started_seq=entry.started_seq,
    )
