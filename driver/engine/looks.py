"""What the journal holds of looks at operations: what each found, and when the next is due.

Part of `driver.engine`; imports `driver.core` and `store`. Each function is part of one unit of the journal:
how far the schedule of a probe has come is read from its events, and kept nowhere else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from driver.core.contracts import Contract
from driver.core.landing import landed_by
from driver.core.probes import Finding, adds, due, is_wanted
from driver.engine.endings import draft
from driver.engine.history import is_of_earlier_history
from store.events import OperationProbed, OperationReconciled
from store.lifecycle import RANK, Evidence, Source
from store.records import OperationId, OperationRecord, StoredEvent, moment
from store.transaction import Transaction
from store.view import OPERATION_EVENTS_MAX, View
from store.wire import data_of

BASIS: Final = "probe"
"""What a probe's verdict says that it rests on; its actor names the tool that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was asked about: the attempts that had been started when the question was put.

    `started_seq` is the intent of the newest of them; `tool` is the one that was asked.
    """

    operation_id: OperationId
    tool: str
    started_seq: int | None
    attempts: int


def record_look(tx: Transaction, look: Look, finding: Finding) -> bool:
    """Record what a look found. Returns whether it is a verdict.

    It is one where it says something, and nothing at least as strong has been said of these attempts by now.
    """
    record = tx.operation(look.operation_id)
    if record is None:
        return False
    probed = OperationProbed(verdict=finding.verdict, matches=finding.matches, detail=finding.detail)
    event = tx.append(draft(look.operation_id, probed))
    effect = finding.effect
    if effect is None or _is_outranked(record):
        return False
    if look.started_seq is None and record.started_seq is not None:
        return False  # without an intent to name, it would speak of whatever has been started since, too
    known = [Evidence(item.attempt, item.effect, item.source) for item in tx.evidence(look.operation_id)]
    if not adds(known, effect, look.attempts):
        return False
    reconciled = OperationReconciled(
        effect=effect,
        actor=f"{BASIS}:{look.tool}",
        basis=BASIS,
        note=finding.detail,
        evidence=(f"event {event.seq}",),
        started_seq=look.started_seq,
    )
    tx.append(draft(look.operation_id, reconciled))
    return True


def _is_outranked(record: OperationRecord) -> bool:
    """Whether somebody who knows better has settled the operation, by whichever attempt."""
    return record.effect_by is not None and RANK[record.effect_by] > RANK[Source.PROBE]


def probes_to_come(view: View, record: OperationRecord, contract: Contract) -> bool:
    """Whether an operation will still be probed by itself, now or later."""
    return next_look(view, record, contract) is not None


def next_look(view: View, record: OperationRecord, contract: Contract) -> datetime | None:
    """Return when an operation is to be probed next, by the schedule; None where it is not any more."""
    if contract.probe is None or not is_wanted(record) or record.ended_at is None:
        return None
    if len(view.operation_events(record.operation_id)) >= OPERATION_EVENTS_MAX:
        return None  # the newest looks are out of sight: somebody has asked for very many
    elsewhere = is_of_earlier_history(view, record)
    looks = [moment(event.at) for event in _looks(view, record.operation_id, record.started_seq or 0)]
    return due(
        contract.probe,
        looks,
        ended=moment(record.ended_at),
        landed=None if elsewhere else landed_by(view.attempts(record.operation_id), contract.late_result_s),
    )


def found_since(view: View, operation_id: OperationId, after_seq: int) -> Finding | None:
    """Return what the first look found that was recorded after an event; None where there was none."""
    for event in _looks(view, operation_id, after_seq):
        # it has content: a look that a command waits for is newer than anything that is erased
        data = data_of(event)
        assert isinstance(data, OperationProbed), "an event is what its kind says"
        return Finding(verdict=data.verdict, matches=data.matches, detail=data.detail or "")
    return None


def _looks(view: View, operation_id: OperationId, after_seq: int) -> Iterator[StoredEvent]:
    """Yield the looks at an operation that were recorded after an event, oldest first."""
    for seq in view.operation_events(operation_id):
        event = view.event(seq) if seq > after_seq else None
        if event is not None and event.kind == OperationProbed.KIND:
            yield event
