"""Operators' verdicts in the journal, whoever brought them: the plane, or somebody on this machine.

Part of `driver.engine`; imports `driver.core` and `store`. Each function is part of one unit of the journal:
of two operators who settle one operation at once, one is first, and the other is told.
"""

from typing import Final

from driver.core.commands import ReconcileData
from driver.core.verdicts import Known, NotRecorded, Record, Verdict, VerdictFacts, rule
from driver.engine.endings import draft
from store.events import CommandCompleted, CommandFailed, OperationReconciled
from store.lifecycle import Source
from store.projection import actor_of
from store.records import JsonObject, OperationId, OperationRecord
from store.transaction import Transaction
from store.view import View
from store.wire import data_of

OPERATOR: Final = "operator:"
"""Begins every operator's name: what a word is worth follows from it, so nobody can claim another source."""


def record_verdict(tx: Transaction, data: ReconcileData) -> CommandCompleted | CommandFailed:
    """Record what an operator says of an operation, unless that changes nothing; return the receipt.

    A completed command's `result` says which event holds the verdict, and whether this command recorded it.
    """
    record = tx.operation(data.operation_id)
    attempts = 1 if record is None else max(record.attempt_count, 1)
    asked = Verdict(effect=data.effect, note=data.note, evidence=data.evidence, attempts=attempts)
    match rule(asked, _facts(tx, record), override=data.override):
        case NotRecorded(code=code, message=message):
            return CommandFailed(code=code, message=message)
        case Known(seq=seq):
            return CommandCompleted(result=_result(data, tx.wire_seq(seq), recorded=False))
        case Record():
            reconciled = OperationReconciled(
                effect=data.effect,
                actor=actor(data.actor),
                basis="operator",
                note=data.note,
                evidence=data.evidence,
                started_seq=None if record is None else record.started_seq,
                label=data.label,
            )
            event = tx.append(draft(data.operation_id, reconciled))
            return CommandCompleted(result=_result(data, tx.wire_seq(event.seq), recorded=True))


def takes_verdict(record: OperationRecord, *, override: bool = False) -> bool:
    """Whether a verdict that nobody has given yet would be recorded."""
    new = Verdict(effect=record.effect, note="new", evidence=(), attempts=record.attempt_count)
    facts = VerdictFacts(state=record.state, effect=record.effect, by=record.effect_by)
    return isinstance(rule(new, facts, override=override), Record)


def actor(name: str) -> str:
    """Return an operator's name as the journal has it: whatever else it boasts of, it is an operator's."""
    return actor_of(Source.OPERATOR, name.removeprefix(OPERATOR))


def _facts(view: View, record: OperationRecord | None) -> VerdictFacts:
    if record is None:
        return VerdictFacts(state=None)
    seq, newest = _newest(view, record.operation_id)
    return VerdictFacts(
        state=record.state,
        effect=record.effect,
        by=record.effect_by,
        newest=newest,
        newest_seq=seq,
    )


def _newest(view: View, operation_id: OperationId) -> tuple[int | None, Verdict | None]:
    """Return the newest verdict of an operator, and its event; its content is None where that was erased."""
    words = [item for item in view.evidence(operation_id) if item.source is Source.OPERATOR]
    if not words:
        return None, None
    last = words[-1]  # of one event, that about the newest attempt comes last
    event = view.event(last.seq)
    if event is None or event.body is None:
        return last.seq, None
    data = data_of(event)
    assert isinstance(data, OperationReconciled), "an operator's word is a verdict"
    verdict = Verdict(effect=data.effect, note=data.note, evidence=data.evidence, attempts=last.attempt)
    return last.seq, verdict


def _result(data: ReconcileData, seq: int, *, recorded: bool) -> JsonObject:
    return {
        "operation_id": data.operation_id,
        "effect": data.effect.value,
        "seq": seq,
        "recorded": recorded,
    }
